//! CNI plugins are put on hosts by init containers of the agent.

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use super::{DeployConfig, host_path, mount, privileged, requests, words};

/// Where init containers see the host's directory of CNI plugins.
const TARGET: &str = "/host/opt/cni/bin";
/// An image of another project, by what it takes to have it copy its plugins and end.
struct Foreign<'a> {
    container: &'static str,
    image: Option<&'a String>,
    copies: Copies,
}

enum Copies {
    /// Its entry point does, and ends when told not to sleep.
    EntryPoint,
    /// A shell in it does. These are paths in the image.
    Shell(&'static [&'static str]),
}

/// The init containers for `deploy`. Of a plugin whose image is not given nothing is installed: none is our own yet.
pub(super) fn init_containers(deploy: &DeployConfig) -> Vec<Container> {
    foreign(deploy).iter().filter_map(container).collect()
}

/// What the init containers mount.
pub(super) fn volumes(deploy: &DeployConfig) -> Vec<Volume> {
    vec![
        host_path("cnibin", &deploy.cni_bin_path, Some("DirectoryOrCreate")),
        host_path("os-release", "/etc/os-release", Some("File")),
    ]
}

fn foreign(deploy: &DeployConfig) -> [Foreign<'_>; 5] {
    let images = &deploy.cni_images;
    [
        Foreign { container: "sriov-cni", image: images.sriov.as_ref(), copies: Copies::EntryPoint },
        Foreign {
            container: "sriov-infiniband-cni",
            image: images.infiniband.as_ref(),
            copies: Copies::EntryPoint,
        },
        Foreign {
            container: "ovs-cni",
            image: images.ovs.as_ref(),
            copies: Copies::Shell(&["/ovs", "/ovs-mirror-producer", "/ovs-mirror-consumer"]),
        },
        Foreign {
            container: "accelerated-bridge-cni",
            image: images.accelerated_bridge.as_ref(),
            // Its entry point sleeps for ever, whatever it is told.
            copies: Copies::Shell(&["/usr/bin/accelerated-bridge"]),
        },
        Foreign { container: "rdma-cni", image: images.rdma.as_ref(), copies: Copies::EntryPoint },
    ]
}

fn container(foreign: &Foreign<'_>) -> Option<Container> {
    let (command, args) = match foreign.copies {
        Copies::EntryPoint => (None, words(&["--no-sleep"])),
        Copies::Shell(files) => {
            (Some(words(&["/bin/sh", "-c"])), vec![format!("cp -f {} {TARGET}/", files.join(" "))])
        }
    };
    Some(Container { command, args: Some(args), ..init_container(foreign.container, foreign.image?) })
}

fn init_container(name: &str, image: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        security_context: Some(privileged()),
        resources: Some(requests("10m", "10Mi")),
        volume_mounts: Some(vec![
            mount("cnibin", TARGET),
            // Some images carry several builds and choose by it.
            VolumeMount { read_only: Some(true), ..mount("os-release", "/host/etc/os-release") },
        ]),
        ..Default::default()
    }
}
