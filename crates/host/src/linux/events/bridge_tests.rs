//! Tests of bridge events on a kernel, in a network namespace.

use super::EventSubscription;
use crate::linux::test_namespace::{run_in_namespace, shell};

/// Returns whether a script causes a relevant event. The kernel sends events before the programs of the script end.
fn is_noticed(subscription: &EventSubscription, script: &str) -> bool {
    subscription.drain().unwrap();
    shell(script);
    subscription.drain().unwrap()
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn changes_of_our_bridges_are_noticed_and_those_of_pods_are_not() {
    run_in_namespace(|| {
        shell(
            "ip link add cni0 type bridge; ip link set cni0 up; ip link add a0 type veth peer name a1; \
             ip link add b0 type veth peer name b1; ip link add br-ours type bridge; \
             ip link set br-ours alias 'vfleet bridge of 0000:01:00.0'; ip link set br-ours up",
        );
        let network = EventSubscription::network(&[]).unwrap();
        for script in [
            "ip link set a0 master cni0; ip link set a0 up; ip link set a1 up",
            "bridge link set dev a0 learning off",
            "bridge fdb add 02:00:00:00:00:01 dev a0 master static",
            "ip link set a0 nomaster",
            "ip link del a0",
        ] {
            assert!(!is_noticed(&network, script), "{script}");
        }
        for script in [
            "ip link set b0 master br-ours",
            "bridge link set dev b0 learning off",
            "ip link set br-ours mtu 1400",
            "ip link set br-ours down",
            "ip link set br-ours up",
            "ip link set b0 nomaster",
            "ip link set b0 master br-ours",
            "ip link del b0",
            // The kernel reports no change of the alias of an interface that is down.
            "ip link set br-ours alias ''",
            "ip link del br-ours",
            "ip link add br-ours type bridge",
        ] {
            assert!(is_noticed(&network, script), "{script}");
        }
        // The port stays down: its state would change some time after it was set up.
        shell(
            "ip link add c0 type veth peer name c1; ip link set br-ours alias 'vfleet bridge of x'; \
             ip link set br-ours up; ip link set c0 master br-ours",
        );
        for script in [
            "bridge fdb add 02:00:00:00:00:01 dev c0 master static",
            "bridge fdb del 02:00:00:00:00:01 dev c0 master",
            "bridge mdb add dev br-ours port c0 grp 239.1.1.1 permanent",
            "ip -s link show c0",
        ] {
            assert!(!is_noticed(&network, script), "{script}");
        }
    });
}
