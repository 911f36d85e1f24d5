use super::guest::assert_same;
use super::scene::{PF, Scene};

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

/// Policies become VFs on one machine without a cluster, are shown, and are taken back. `plan` changes nothing, and a
/// second `apply` has nothing to do.
#[expect(clippy::unused_async, reason = "as its neighbours")]
pub(super) async fn apply_show_reset(scene: &Scene<'_>) {
    let Scene { guest, .. } = scene;
    let node = format!("{} node", guest.install(scene.programs.vfleet));
    let file = "/run/policies.yaml";
    guest.run(&format!("cat >{file} <<'EOF'\n{POLICIES}EOF"));

    let plan = guest.run(&format!("{node} plan -f {file}"));
    assert!(plan.contains("numvfs 2"), "{plan}");
    assert_eq!(guest.drivers(PF), [""; 0], "only planned");

    guest.run(&format!("{node} apply -f {file}"));
    assert_eq!(guest.drivers(PF), ["vfio-pci"; 2]);
    let shown = guest.run(&format!("{node} show"));
    for word in [PF, "0000:01:10.0", "0000:01:10.2", "vfio-pci"] {
        assert!(shown.contains(word), "{word} is not shown: {shown}");
    }
    let before = guest.snapshot(PF, 0..2);
    guest.run(&format!("{node} apply -f - <{file}"));
    assert_same(&before, &guest.snapshot(PF, 0..2), "what was as wanted was touched");

    // A slip of the pen.
    let typo = guest
        .run(&format!("sed s/enp1s0/enp1s9/ {file} | {node} apply --wait 0 --force -f - || echo exit $?"));
    assert!(typo.contains("no network card enp1s9") && typo.ends_with("exit 1"), "{typo}");
    assert_same(&before, &guest.snapshot(PF, 0..2), "a card was given back because of a slip of the pen");

    // Two at once: one of them works, the other one says so, or comes after it.
    let apply = format!("{node} apply --force -f {file}");
    for _ in 0..3 {
        guest.run(&format!("{node} reset --force"));
        let said = guest.run(&format!("({apply} 2>&1 || echo exit $?) & {apply} 2>&1 || echo exit $?; wait"));
        let refused = said.matches("another program is configuring this machine").count();
        assert!(refused <= 1 && said.matches("exit 1").count() == refused, "{said}");
        assert_eq!(guest.drivers(PF), ["vfio-pci"; 2], "{said}");
    }

    guest.run(&format!("{node} reset --force"));
    assert_eq!(guest.drivers(PF), [""; 0]);
    assert_eq!(guest.run("find /etc/sriov-operator/vfleet/pci -type f 2>/dev/null || true"), "");
}
