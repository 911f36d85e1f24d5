//! Scenario of the demo.

use anyhow::Result;
use fixture_kube::ControlPlane;
use vfleet_api::keys::DEFAULT_NAMESPACE;

use crate::fleet::Fleet;
use crate::fleet_view::FleetView;
use crate::programs::{self, Programs};
use crate::screen::Screen;

const NODES: [&str; 5] = ["node-a", "node-b", "node-c", "node-d", "node-e"];
/// Nodes that get more VFs than the others.
const MANY: [&str; 3] = ["node-c", "node-d", "node-e"];

/// Returns whether all pods of demo/pods.yaml are running.
fn all_pods_run(view: &FleetView) -> bool {
    view.pods.with_vf == 10 && view.pods.without == 5
}

/// Runs the scenario, and returns the processes that it started.
pub(crate) async fn run(screen: &mut Screen, plane: &ControlPlane, keep: bool) -> Result<Programs> {
    screen.print_step("installing the CustomResourceDefinitions and roles");
    plane.apply_crds(&programs::project().join("deploy/crds"))?;
    for file in ["deploy/rbac.yaml", "deploy/node-scope.yaml", "deploy/sim-rbac.yaml"] {
        apply(plane, file)?;
    }
    screen.print_step(
        "demo/pools.yaml: pool1 (a, b, c; one node at a time) and pool2 (c, d, e; two at a time)",
    );
    apply(plane, "demo/pools.yaml")?;
    screen.print_step("starting the operator and five simulated nodes, each with two SR-IOV ports");
    let programs = start_programs(plane, keep)?;
    let mut fleet = Fleet::new(plane.client().await?);
    let all_reported = |view: &FleetView| view.all_reported(NODES.len());
    fleet.show_until(screen, "the nodes report their cards", all_reported).await?;

    screen.print_step(
        "demo/policy-8-vfs.yaml: 8 VFs on every node. No pod uses VFs yet, so no drain is needed",
    );
    apply(plane, "demo/policy-8-vfs.yaml")?;
    fleet.show_until(screen, "all nodes have 8 VFs", |now| now.is_settled(|_| 8)).await?;

    screen.print_step("demo/pods.yaml: 10 pods with a VF each (at most 3 unavailable), 5 pods without VFs");
    fleet.offer(8).await?;
    apply(plane, "demo/pods.yaml")?;
    fleet.show_until(screen, "all pods run", all_pods_run).await?;

    screen.print_step(
        "demo/policy-16-vfs.yaml: 16 VFs on c, d, e. The old VFs are removed, so their pods are evicted first",
    );
    screen.print_step(
        "c gets the only slot of pool1, d and e those of pool2: all three are drained at the same time",
    );
    let label = [&["label", "node"], &MANY[..], &["example.com/many-vfs="]].concat();
    plane.kubectl(&label)?.into_stdout()?;
    apply(plane, "demo/policy-16-vfs.yaml")?;
    let many = |node: &str| if MANY.contains(&node) { 16 } else { 8 };
    fleet.show_until(screen, "c, d, e have 16 VFs", |now| now.is_settled(many) && all_pods_run(now)).await?;

    screen.print_step(
        "demo/policy-12-vfs.yaml: 12 VFs on every node. The nodes of pool1 are drained one after the other",
    );
    apply(plane, "demo/policy-12-vfs.yaml")?;
    fleet
        .show_until(screen, "all nodes have 12 VFs", |now| now.is_settled(|_| 12) && all_pods_run(now))
        .await?;
    screen.print_step(&format!("largest number of slots held at the same time: {}", fleet.max_slots_text()));
    show_kubectl(screen, plane)?;
    Ok(programs)
}

fn start_programs(plane: &ControlPlane, keep: bool) -> Result<Programs> {
    let mut programs = Programs::new(plane, keep)?;
    // The ports for metrics, probes and webhooks may be in use on this machine.
    let without_servers =
        ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-bind-address=0"];
    let operator = [&["operator"], &without_servers[..]].concat();
    programs.start("operator", "vfleet-operator", &operator)?;
    let machine = programs::project().join("demo/machine.yaml").display().to_string();
    let names = NODES.join(",");
    let nodes = ["sim", "--names", &names, "--machine", &machine, "--step-time", "100"];
    programs.start("sim", "vfleet-sim", &nodes)?;
    Ok(programs)
}

fn apply(plane: &ControlPlane, file: &str) -> Result<()> {
    let path = programs::project().join(file).display().to_string();
    plane.kubectl(&["apply", "--server-side", "-f", &path])?.into_stdout().map(drop)
}

fn show_kubectl(screen: &Screen, plane: &ControlPlane) -> Result<()> {
    for kind in ["sriovnetworkpoolconfigs", "sriovnetworknodestates"] {
        let arguments = ["-n", DEFAULT_NAMESPACE, "get", kind];
        screen.print(&format!("$ kubectl {}\n", arguments.join(" ")));
        screen.print(&plane.kubectl(&arguments)?.into_stdout()?);
    }
    Ok(())
}

/// Returns commands to try on a cluster that is left running.
pub(crate) fn suggestions(plane: &ControlPlane) -> Result<String> {
    let (kubeconfig, assets) = (plane.kubeconfig().display(), fixture_kube::assets()?);
    let namespace = DEFAULT_NAMESPACE;
    Ok(format!(
        "to explore the cluster:
    export KUBECONFIG={kubeconfig} PATH={assets}:$PATH
    kubectl -n {namespace} get sriovnetworkpoolconfigs,sriovnetworknodestates,sriovnetworknodepolicies
    kubectl -n {namespace} describe sriovnetworknodestate node-c     # its drains are in Events
    kubectl get pods -o wide
to see a blocked drain and its reason:
    kubectl patch pdb with-vf --type merge -p '{{\"spec\":{{\"maxUnavailable\":0}}}}'
    kubectl -n {namespace} patch sriovnetworknodepolicy nics --type merge -p '{{\"spec\":{{\"numVfs\":4}}}}'
    kubectl -n {namespace} get sriovnetworkpoolconfigs --watch
    kubectl -n {namespace} describe sriovnetworkpoolconfig pool1
    kubectl patch pdb with-vf --type merge -p '{{\"spec\":{{\"maxUnavailable\":3}}}}'     # unblocks the drain
",
        assets = assets.display(),
    ))
}
