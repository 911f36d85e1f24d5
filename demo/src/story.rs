//! What happens in the demo, one thing after the other.

use anyhow::Result;
use fixture_kube::ControlPlane;
use vfleet_api::keys::DEFAULT_NAMESPACE;

use crate::fleet::Fleet;
use crate::picture::Picture;
use crate::programs::{self, Programs};
use crate::screen::Screen;

const NODES: [&str; 5] = ["node-a", "node-b", "node-c", "node-d", "node-e"];
/// Those of them that get more VFs than the others.
const MANY: [&str; 3] = ["node-c", "node-d", "node-e"];

/// As many pods as demo/pods.yaml has.
fn all_run(picture: &Picture) -> bool {
    picture.pods.with_vf == 10 && picture.pods.without == 5
}

/// Tells it, and gives the programs that run in it.
pub(crate) async fn tell(screen: &mut Screen, plane: &ControlPlane, keep: bool) -> Result<Programs> {
    screen.say("installing the CustomResourceDefinitions and roles");
    plane.apply_crds(&programs::project().join("deploy/crds"))?;
    for file in ["deploy/rbac.yaml", "deploy/node-scope.yaml", "deploy/sim-rbac.yaml"] {
        apply(plane, file)?;
    }
    screen.say("demo/pools.yaml: pool1 (a, b, c; one node at a time) and pool2 (c, d, e; two at a time)");
    apply(plane, "demo/pools.yaml")?;
    screen.say("starting the operator and five simulated nodes, each with two SR-IOV ports");
    let programs = start_programs(plane, keep)?;
    let mut fleet = Fleet::new(plane.client().await?);
    let report = |picture: &Picture| picture.all_report(NODES.len());
    fleet.show_until(screen, "the nodes report their cards", report).await?;

    screen.say("demo/policy-8-vfs.yaml: 8 VFs on every node. Nobody uses VFs yet, so that nobody waits");
    apply(plane, "demo/policy-8-vfs.yaml")?;
    fleet.show_until(screen, "all nodes have 8 VFs", |now| now.is_settled(|_| 8)).await?;

    screen.say("demo/pods.yaml: 10 pods with a VF each (3 may be away at a time), 5 pods without");
    fleet.offer(8).await?;
    apply(plane, "demo/pods.yaml")?;
    fleet.show_until(screen, "all pods run", all_run).await?;

    screen.say(
        "demo/policy-16-vfs.yaml: 16 VFs on c, d, e. The old VFs go, so pods that have them move first.",
    );
    screen.say("c has pool1's only slot, d and e the two of pool2: all three are drained at once");
    let label = [&["label", "node"], &MANY[..], &["example.com/many-vfs="]].concat();
    plane.kubectl(&label)?.into_stdout()?;
    apply(plane, "demo/policy-16-vfs.yaml")?;
    let many = |node: &str| if MANY.contains(&node) { 16 } else { 8 };
    fleet.show_until(screen, "c, d, e have 16 VFs", |now| now.is_settled(many) && all_run(now)).await?;

    screen.say("demo/policy-12-vfs.yaml: 12 VFs on every node. In pool1 they go one after the other");
    apply(plane, "demo/policy-12-vfs.yaml")?;
    fleet.show_until(screen, "all nodes have 12 VFs", |now| now.is_settled(|_| 12) && all_run(now)).await?;
    screen.say(&format!("the most slots that were held at once: {}", fleet.most_at_once()));
    show_kubectl(screen, plane)?;
    Ok(programs)
}

fn start_programs(plane: &ControlPlane, keep: bool) -> Result<Programs> {
    let mut programs = Programs::new(plane, keep)?;
    // The ports for metrics, probes and webhooks may be somebody else's on this machine.
    let nowhere = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-bind-address=0"];
    let operator = [&["operator"], &nowhere[..]].concat();
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

/// What somebody who has kept the cluster may want to look at.
pub(crate) fn what_to_try(plane: &ControlPlane) -> Result<String> {
    let (kubeconfig, assets) = (plane.kubeconfig().display(), fixture_kube::assets()?);
    let namespace = DEFAULT_NAMESPACE;
    Ok(format!(
        "to look around:
    export KUBECONFIG={kubeconfig} PATH={assets}:$PATH
    kubectl -n {namespace} get sriovnetworkpoolconfigs,sriovnetworknodestates,sriovnetworknodepolicies
    kubectl -n {namespace} describe sriovnetworknodestate node-c     # its drains, in Events
    kubectl get pods -o wide
to see a drain that cannot go on, and why:
    kubectl patch pdb with-vf --type merge -p '{{\"spec\":{{\"maxUnavailable\":0}}}}'
    kubectl -n {namespace} patch sriovnetworknodepolicy nics --type merge -p '{{\"spec\":{{\"numVfs\":4}}}}'
    kubectl -n {namespace} get sriovnetworkpoolconfigs --watch
    kubectl -n {namespace} describe sriovnetworkpoolconfig pool1
    kubectl patch pdb with-vf --type merge -p '{{\"spec\":{{\"maxUnavailable\":3}}}}'     # and it goes on
",
        assets = assets.display(),
    ))
}
