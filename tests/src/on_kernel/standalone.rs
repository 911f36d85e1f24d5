//! Standalone mode: `vfleet node` without a cluster.

use super::guest::assert_unchanged;
use super::lab_cluster::{LabCluster, PF};

const POLICIES: &str = "\
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata:
  name: standalone
spec:
  resourceName: nics
  numVfs: 2
  nodeSelector: {}
  deviceType: vfio-pci
  nicSelector:
    pfNames: [enp1s0]
";

/// Policies are applied on one machine without a cluster, shown, and reset. `plan` changes nothing, and a second
/// `apply` has nothing to do.
#[expect(clippy::unused_async, reason = "all scenarios are async")]
pub(super) async fn apply_show_reset(lab: &LabCluster<'_>) {
    let LabCluster { guest, .. } = lab;
    let node = format!("{} node", guest.install(lab.programs.vfleet));
    let file = "/run/policies.yaml";
    guest.run(&format!("cat >{file} <<'EOF'\n{POLICIES}EOF"));

    let plan = guest.run(&format!("{node} plan -f {file}"));
    assert!(plan.contains("numvfs 2"), "{plan}");
    assert_eq!(guest.drivers(PF), [""; 0], "plan changes nothing");

    guest.run(&format!("{node} apply -f {file}"));
    assert_eq!(guest.drivers(PF), ["vfio-pci"; 2]);
    let output = guest.run(&format!("{node} show"));
    for word in [PF, "0000:01:10.0", "0000:01:10.2", "vfio-pci"] {
        assert!(output.contains(word), "{word} is not shown: {output}");
    }
    let before = guest.snapshot(PF, 0..2);
    guest.run(&format!("{node} apply -f - <{file}"));
    assert_unchanged(&before, &guest.snapshot(PF, 0..2), "the second apply changed a configured card");

    // A typing error in the name of a card.
    let typo = guest
        .run(&format!("sed s/enp1s0/enp1s9/ {file} | {node} apply --wait 0 --force -f - || echo exit $?"));
    assert!(typo.contains("no card enp1s9") && typo.ends_with("exit 1"), "{typo}");
    assert_unchanged(&before, &guest.snapshot(PF, 0..2), "a card was reset because of a typing error");

    // Two at the same time: the second one is refused, or runs after the first one.
    let apply = format!("{node} apply --force -f {file}");
    for _ in 0..3 {
        guest.run(&format!("{node} reset --force"));
        let output =
            guest.run(&format!("({apply} 2>&1 || echo exit $?) & {apply} 2>&1 || echo exit $?; wait"));
        let refused = output.matches("another program is configuring this machine").count();
        assert!(refused <= 1 && output.matches("exit 1").count() == refused, "{output}");
        assert_eq!(guest.drivers(PF), ["vfio-pci"; 2], "{output}");
    }

    guest.run(&format!("{node} reset --force"));
    assert_eq!(guest.drivers(PF), [""; 0]);
    assert_eq!(guest.run("find /etc/sriov-operator/vfleet/pci -type f 2>/dev/null || true"), "");
}
