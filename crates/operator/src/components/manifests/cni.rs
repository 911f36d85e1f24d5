//! Init containers of the agent that install CNI plugins on hosts.

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use super::{DeployConfig, host_path, mount, privileged, requests, strings};

/// Mount point of the host's directory of CNI plugins.
const TARGET: &str = "/host/opt/cni/bin";

/// CNI plugin image of another project.
struct CniPlugin<'a> {
    container: &'static str,
    image: Option<&'a String>,
    install: InstallMethod,
}

/// Method to copy the plugins of an image to the host.
enum InstallMethod {
    /// The entry point copies them, and exits with `--no-sleep`.
    EntryPoint,
    /// A shell copies these paths of the image.
    Shell(&'static [&'static str]),
}

/// Builds the init containers. A plugin without an image is not installed.
pub(super) fn build_init_containers(deploy: &DeployConfig) -> Vec<Container> {
    cni_plugins(deploy).iter().filter_map(build_container).collect()
}

/// Builds the volumes of the init containers.
pub(super) fn build_volumes(deploy: &DeployConfig) -> Vec<Volume> {
    vec![
        host_path("cnibin", &deploy.cni_bin_path, Some("DirectoryOrCreate")),
        host_path("os-release", "/etc/os-release", Some("File")),
    ]
}

fn cni_plugins(deploy: &DeployConfig) -> [CniPlugin<'_>; 5] {
    let images = &deploy.cni_images;
    [
        CniPlugin {
            container: "sriov-cni",
            image: images.sriov.as_ref(),
            install: InstallMethod::EntryPoint,
        },
        CniPlugin {
            container: "sriov-infiniband-cni",
            image: images.infiniband.as_ref(),
            install: InstallMethod::EntryPoint,
        },
        CniPlugin {
            container: "ovs-cni",
            image: images.ovs.as_ref(),
            install: InstallMethod::Shell(&["/ovs", "/ovs-mirror-producer", "/ovs-mirror-consumer"]),
        },
        CniPlugin {
            container: "accelerated-bridge-cni",
            image: images.accelerated_bridge.as_ref(),
            // Its entry point never exits.
            install: InstallMethod::Shell(&["/usr/bin/accelerated-bridge"]),
        },
        CniPlugin { container: "rdma-cni", image: images.rdma.as_ref(), install: InstallMethod::EntryPoint },
    ]
}

fn build_container(plugin: &CniPlugin<'_>) -> Option<Container> {
    let (command, args) = match plugin.install {
        InstallMethod::EntryPoint => (None, strings(&["--no-sleep"])),
        InstallMethod::Shell(files) => {
            (Some(strings(&["/bin/sh", "-c"])), vec![format!("cp -f {} {TARGET}/", files.join(" "))])
        }
    };
    Some(Container { command, args: Some(args), ..init_container(plugin.container, plugin.image?) })
}

fn init_container(name: &str, image: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        security_context: Some(privileged()),
        resources: Some(requests("10m", "10Mi")),
        volume_mounts: Some(vec![
            mount("cnibin", TARGET),
            // Some images contain several builds and select one by the OS release.
            VolumeMount { read_only: Some(true), ..mount("os-release", "/host/etc/os-release") },
        ]),
        ..Default::default()
    }
}
