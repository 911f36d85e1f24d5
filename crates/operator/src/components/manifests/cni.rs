//! Init containers of the agent that install CNI plugins on hosts: those of vfleet, and those of other projects whose image
//! is configured.

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use vfleet_plan::cni::programs::{PLUGIN_NAMES, PROGRAM};

use super::{DeployConfig, host_path, mount, privileged, requests, strings};

/// Mount point of the host's directory of CNI plugins.
const TARGET: &str = "/host/opt/cni/bin";

/// CNI plugin of another project.
struct CniPlugin<'a> {
    container: &'static str,
    /// Names of its programs.
    names: &'static [&'static str],
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

/// Builds the init containers. A plugin whose image is configured is installed instead of the one of vfleet, which is in
/// the image of the agent.
pub(super) fn build_init_containers(deploy: &DeployConfig, agent_image: &str) -> Vec<Container> {
    let others = cni_plugins(deploy);
    build_own_container(deploy, agent_image)
        .into_iter()
        .chain(others.iter().filter_map(build_container))
        .collect()
}

/// Builds the volumes of the init containers.
pub(super) fn build_volumes(deploy: &DeployConfig) -> Vec<Volume> {
    let bin = host_path("cnibin", &deploy.cni_bin_path, Some("DirectoryOrCreate"));
    let has_others = cni_plugins(deploy).iter().any(|plugin| plugin.image.is_some());
    let release = has_others.then(|| host_path("os-release", "/etc/os-release", Some("File")));
    [bin].into_iter().chain(release).collect()
}

/// Returns the plugins of vfleet that are not installed, because an image with another one is configured.
pub(super) fn replaced_plugins(deploy: &DeployConfig) -> Vec<&'static str> {
    let plugins = cni_plugins(deploy);
    let configured = plugins.iter().filter(|plugin| plugin.image.is_some());
    configured.flat_map(|plugin| plugin.names).copied().filter(|name| PLUGIN_NAMES.contains(name)).collect()
}

fn cni_plugins(deploy: &DeployConfig) -> [CniPlugin<'_>; 5] {
    let images = &deploy.cni_images;
    [
        CniPlugin {
            container: "sriov-cni",
            names: &["sriov"],
            image: images.sriov.as_ref(),
            install: InstallMethod::EntryPoint,
        },
        CniPlugin {
            container: "sriov-infiniband-cni",
            names: &["ib-sriov"],
            image: images.infiniband.as_ref(),
            install: InstallMethod::EntryPoint,
        },
        CniPlugin {
            container: "ovs-cni",
            names: &["ovs", "ovs-mirror-producer", "ovs-mirror-consumer"],
            image: images.ovs.as_ref(),
            install: InstallMethod::Shell(&["/ovs", "/ovs-mirror-producer", "/ovs-mirror-consumer"]),
        },
        CniPlugin {
            container: "accelerated-bridge-cni",
            names: &["accelerated-bridge"],
            image: images.accelerated_bridge.as_ref(),
            // Its entry point never exits.
            install: InstallMethod::Shell(&["/usr/bin/accelerated-bridge"]),
        },
        CniPlugin {
            container: "rdma-cni",
            names: &["rdma"],
            image: images.rdma.as_ref(),
            install: InstallMethod::EntryPoint,
        },
    ]
}

/// Builds the init container that installs the plugins of vfleet; `None` if all of them are replaced. A program that is
/// neither ours nor replaceable does not keep the agent from starting: the agent reports it.
fn build_own_container(deploy: &DeployConfig, image: &str) -> Option<Container> {
    let replaced = replaced_plugins(deploy);
    if PLUGIN_NAMES.iter().all(|name| replaced.contains(name)) {
        return None;
    }
    let mut args = strings(&["install-cni", "--dir", TARGET, "--tolerate-foreign"]);
    args.extend(replaced.iter().flat_map(|name| strings(&["--skip", name])));
    Some(Container {
        command: Some(strings(&["/usr/bin/vfleet"])),
        args: Some(args),
        volume_mounts: Some(vec![mount("cnibin", TARGET)]),
        ..init_container(PROGRAM, image)
    })
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
