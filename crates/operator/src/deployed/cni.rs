//! CNI plugins are put on hosts by init containers of the agent.

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use super::{DeployConfig, host_path, mount, privileged, requests, words};

/// Where init containers see the host's directory of CNI plugins.
const TARGET: &str = "/host/opt/cni/bin";
/// The names of the plugins that our own program carries: none yet. Each that it learns is added here, and is installed
/// unless an image for it is given.
const OWN_PLUGINS: &[&str] = &[];

/// An image of another project, by what it takes to have it copy its plugins and end.
struct Foreign<'a> {
    container: &'static str,
    image: Option<&'a String>,
    plugin: &'static str,
    copies: Copies,
}

enum Copies {
    /// Its entry point does, and ends when told not to sleep.
    EntryPoint,
    /// A shell in it does. These are paths in the image.
    Shell(&'static [&'static str]),
}

/// The init containers for `deploy`, when `image` is our own.
pub(super) fn init_containers(deploy: &DeployConfig, image: &str) -> Vec<Container> {
    let foreign = foreign(deploy);
    let given = |plugin: &str| foreign.iter().any(|other| other.plugin == plugin && other.image.is_some());
    let own: Vec<_> = OWN_PLUGINS.iter().copied().filter(|plugin| !given(plugin)).collect();
    let mut containers: Vec<_> = foreign.iter().filter_map(foreign_container).collect();
    containers.extend(own_container(image, &own));
    containers
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
        Foreign {
            container: "sriov-cni",
            image: images.sriov.as_ref(),
            plugin: "sriov",
            copies: Copies::EntryPoint,
        },
        Foreign {
            container: "sriov-infiniband-cni",
            image: images.infiniband.as_ref(),
            plugin: "ib-sriov",
            copies: Copies::EntryPoint,
        },
        Foreign {
            container: "ovs-cni",
            image: images.ovs.as_ref(),
            plugin: "ovs",
            copies: Copies::Shell(&["/ovs", "/ovs-mirror-producer", "/ovs-mirror-consumer"]),
        },
        Foreign {
            container: "accelerated-bridge-cni",
            image: images.accelerated_bridge.as_ref(),
            plugin: "accelerated-bridge",
            // Its entry point sleeps for ever, whatever it is told.
            copies: Copies::Shell(&["/usr/bin/accelerated-bridge"]),
        },
        Foreign {
            container: "rdma-cni",
            image: images.rdma.as_ref(),
            plugin: "rdma",
            copies: Copies::EntryPoint,
        },
    ]
}

fn foreign_container(foreign: &Foreign<'_>) -> Option<Container> {
    let (command, args) = match foreign.copies {
        Copies::EntryPoint => (None, words(&["--no-sleep"])),
        Copies::Shell(files) => {
            (Some(words(&["/bin/sh", "-c"])), vec![format!("cp -f {} {TARGET}/", files.join(" "))])
        }
    };
    Some(Container { command, args: Some(args), ..init_container(foreign.container, foreign.image?) })
}

/// Copies our program under the name of each plugin. `None` when there is none to install.
fn own_container(image: &str, plugins: &[&str]) -> Option<Container> {
    (!plugins.is_empty()).then(|| Container {
        command: Some(words(&["/usr/bin/vfleet-cni", "--install", TARGET])),
        args: Some(words(plugins)),
        ..init_container("vfleet-cni", image)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_plugins_are_installed_by_one_container_and_none_by_none() {
        assert_eq!(own_container("image", &[]), None);
        let container = own_container("image", &["sriov", "ovs"]).unwrap();
        assert_eq!(container.args.unwrap(), ["sriov", "ovs"]);
        assert_eq!(container.image.unwrap(), "image");
    }
}
