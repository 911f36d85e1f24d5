//! Fuzz targets: every parser of external data handles any input without a panic, in bounded time and memory, and
//! accepted input has the documented properties.
//!
//! The driver (`fuzz/driver.rs`) replays the corpus of a target and then mutates it (`fuzz/mutate.rs`): bits, bytes,
//! lengths, numbers, lines, values of JSON and YAML, deep nesting, odd UTF-8, splices of two inputs, random bytes.
//! Mutations that a parser accepts are mutated further.
//!
//! | variable | meaning |
//! |---|---|
//! | `FUZZ_SECONDS` | time for each target; if unset, each target tries a fixed number of inputs |
//! | `FUZZ_CASES` | number of inputs, for all targets |
//! | `FUZZ_SEED` | seed; if unset, always the same, or with `FUZZ_SECONDS` a new one for each target, which is printed |
//! | `FUZZ_INPUT` | file with the only input to try |
//! | `FUZZ_TRACE` | if set, each input is written to `TARGET-trace` before it is tried, to find stack overflows, which end the program without a report |
//!
//! A long run that prints its seeds: `FUZZ_SECONDS=60 cargo test --release -p vfleet-tests --test fuzz -- --nocapture`.
//!
//! A failure reports its target, reason and seed, and writes the input to a file in `target/tmp/fuzz`. Copy that file
//! to `fuzz/corpus/TARGET` before you fix the parser: every later run replays it.
//!
//! # Parsers and their targets
//!
//! | external data | parser | target |
//! |---|---|---|
//! | netlink: framing, errors, end of lists | `host/src/linux/netlink/message.rs` | `netlink_reply` |
//! | netlink: attributes | `host/src/linux/netlink/attribute.rs` | `attributes` |
//! | rtnetlink: interfaces with VFs, Linux bridges and their ports, routes, next hops, addresses | `host/src/linux/netlink/rtnl/` | `link`, `route`, `address`, `next_hop` |
//! | generic netlink: families | `host/src/linux/netlink/generic.rs` | `genl_family` |
//! | rtnetlink: VLANs of the ports of Linux bridges | `host/src/linux/netlink/rtnl/bridge_vlan.rs` | `port_vlans` |
//! | devlink: eswitch, parameters, ports | `host/src/linux/netlink/devlink.rs` | `devlink_eswitch`, `devlink_parameter`, `devlink_port` |
//! | vDPA: configuration of devices | `host/src/linux/netlink/vdpa.rs` | `vdpa_config` |
//! | ethtool: features | `host/src/linux/netlink/ethtool.rs` | `ethtool_features` |
//! | RDMA: mode of namespaces, devices | `host/src/linux/netlink/rdma.rs` | `rdma_mode`, `rdma_device` |
//! | OVSDB: framing, answers, rows, updates | `host/src/linux/ovsdb/{framing,client}.rs`, `ovs/rows.rs`, `ovs/watch/columns.rs` | `ovsdb` |
//! | OVSDB: ports and mirrors of attachments | `host/src/linux/ovs/switch_rows.rs` | `ovsdb_switch` |
//! | uevents | `host/src/linux/uevent.rs` | `uevent` |
//! | words of sysfs | `host/src/linux/parse.rs` | `sysfs_word` |
//! | cpuinfo, lockdown, lists of modules, mounts | `host/src/linux/{system,modules}.rs`, `platform/openstack.rs` | `kernel_lists` |
//! | records of vfleet and of the Go daemon | `host/src/linux/records.rs` | `record`, `go_record` |
//! | count of reboots | `plan/src/facts.rs` (`Reboots`) | `reboots` |
//! | GUID file | `plan/src/guids/file.rs` | `guid_file` |
//! | config and result of the boot units, of vfleet and of the Go operator | `agent/src/boot.rs`, `plan/src/boot/config.rs` | `boot_config`, `boot_result` |
//! | kernel command line | `plan/src/kernel_arguments.rs` | `kernel_command_line` |
//! | GRUB's files, grubby | `host/src/linux/boot_loader/arguments.rs` | `grub_drop_in`, `grub_config` |
//! | mstconfig and mlxconfig | `plan/src/firmware/parse.rs` | `mstconfig` |
//! | responses of metadata services | `host/src/linux/platform/http.rs` | `http_answer` |
//! | OpenStack's metadata; AWS' metadata, provider ids | `host/src/linux/platform/{openstack,aws}.rs`, `platform.rs` | `openstack`, `aws` |
//! | networks of a pod | `plan/src/admission/injector/annotation.rs` | `pod_networks` |
//! | annotations of NetworkAttachmentDefinitions | `plan/src/admission/injector.rs` | `nad_annotations` |
//! | IPAM, meta plugins and capabilities of networks | `plan/src/network/json.rs` | `network_spec` |
//! | drain annotations of nodes, status and annotations of node states, of vfleet and of the Go operator | `plan/src/drain/{facts,external,moment}.rs` | `drain_annotations`, `node_state` |
//! | ConfigMap of NIC ids | `plan/src/resources/nic_ids.rs` | `nic_ids` |
//! | PCI addresses, VF ranges `pf#0-7`, MACs, GUIDs | `api/src/{pci,vf,hardware}.rs` | `api_words` |
//! | CNI: network configuration, `CNI_ARGS`, results of other plugins | `plan/src/cni/{config,protocol,protocol/result}.rs` | `cni_stdin`, `cni_args`, `cni_result` |
//! | CNI: names of journals | `host/src/linux/attachment/journals.rs` | `cni_journal_name` |
//! | CNI: caches of the Go plugins, journals | `plan/src/cni/{go_cache,journal}.rs` | `go_cni_cache`, `cni_journal` |
//! | objects of the API, as the Go operator wrote them | `api/src/` | `api_objects` |
//! | objects of watches, also unreadable ones | `cluster/src/guarded.rs`, `operator/src/admission/index.rs` | `watched_objects` |
//! | AdmissionReview with its response | `operator/src/admission/{review,object}.rs`, `plan/src/admission/` | `admission_validate`, `admission_mutate`, `admission_pod` |
//! | certificates, keys, bundles in PEM | `operator/src/admission/certificates/pem.rs` | `certificate`, `authorities` |
//! | Secret of own certificates | `operator/src/admission/certificates/own.rs`, `plan/src/certificates.rs` | `kept_certificates` |
//! | authority in base64 or PEM, webhook URL, addresses, times | `operator/src/{admission/config,replica/server}.rs`, `vfleet/src/commands/` | `options` |
//! | policies of `vfleet node` | `vfleet/src/commands/node/policies.rs` | `node_policies` |
//! | machines of `--sim` | `host/src/sim/machine.rs` | `sim_machine` |
//!
//! Not covered: data that D-Bus, HTTP and TLS libraries parse, objects of Kubernetes itself, which `k8s-openapi`
//! parses, and data that is only looked up or split into words: fields of OpenShift objects by path, times, and the
//! arguments of kernel-install.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

mod admission;
mod api;
mod boot;
mod certificates;
mod cloud;
mod cni;
mod driver;
mod mutate;
mod netlink;
mod node_files;
mod objects;
mod ovsdb;
mod programs;
mod self_test;
mod settings;
mod worker;
