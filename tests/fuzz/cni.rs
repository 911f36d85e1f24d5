//! CNI: standard input and environment of the plugins, results of other plugins, caches of the Go plugins, journals.

use std::collections::BTreeMap;

use vfleet_api::{MacAddr, VfRef};
use vfleet_host::fuzzing;
use vfleet_plan::cni::config::{
    AcceleratedBridgeConfig, InfinibandConfig, MirrorConfig, NetworkConfig, OvsConfig, RdmaConfig,
    SriovConfig,
};
use vfleet_plan::cni::facts::{Namespace, NamespaceId, OvsSocket};
use vfleet_plan::cni::go_cache::{GoAttachment, parse_go_cache};
use vfleet_plan::cni::journal::{Journal, Plugin};
use vfleet_plan::cni::protocol::result::CniResult;
use vfleet_plan::cni::protocol::{
    CniArgs, CniError, CniVersion, Command, ErrorCode, Invocation, error_output,
};
use vfleet_plan::cni::step::OvsVlans;

use crate::driver::{Target, Verdict};

const COMMANDS: [Command; 5] = [Command::Add, Command::Del, Command::Check, Command::Gc, Command::Status];

/// Asserts that an error is one of its kind that the runtime can print.
fn check_error(error: &CniError, codes: &[ErrorCode]) {
    assert!(codes.contains(&error.code) && !error.message.is_empty(), "{error:?}");
    let output = error_output(error, CniVersion::LATEST.as_str());
    assert_eq!(output["code"], error.code.number());
    assert!(output.to_string().parse::<serde_json::Value>().is_ok());
}

#[test]
fn cni_journal_name() {
    const WORDS: &[&str] = &["sriov:", "ib-sriov:", "rdma:", ":net1:", "0000:01:10.0", ".tmp", ".."];
    Target::new("cni_journal_name").with_words(WORDS).run(|bytes| {
        let name = String::from_utf8_lossy(bytes);
        let Some((key, written)) = fuzzing::journal_name(&name) else { return Verdict::Refused };
        assert_eq!(written, name);
        assert!(!name.contains('/') && !name.starts_with('.'), "{name:?}");
        assert!(!key.container_id.contains(':') && !key.interface.contains(':'), "{key:?}");
        Verdict::Accepted
    });
}

#[test]
fn cni_stdin() {
    const WORDS: &[&str] =
        &["on", "off", "802.1Q", "DEVICEID", "spoofch\u{212a}", "cniVersion", "0.2.0", "dhcp"];
    Target::new("cni_stdin").with_words(WORDS).run(|bytes| {
        let mut is_accepted = false;
        for command in COMMANDS {
            let network = match NetworkConfig::parse(command, bytes) {
                Ok(network) => network,
                Err(error) => {
                    use ErrorCode::{Decode, IncompatibleVersion, InvalidConfig};
                    check_error(&error, &[Decode, IncompatibleVersion, InvalidConfig]);
                    continue;
                }
            };
            assert!(!network.name.is_empty() && !network.name.contains(['/', ':']));
            assert!(network.object.is_object());
            if matches!(command, Command::Add | Command::Check) {
                is_accepted |= check_settings(&network);
            }
        }
        Verdict::of(is_accepted)
    });
}

/// Checks the settings of each plugin; returns whether one accepts the configuration.
fn check_settings(network: &NetworkConfig) -> bool {
    let args = CniArgs::default();
    let refused = |error: &CniError| check_error(error, &[ErrorCode::InvalidConfig]);
    let sriov = SriovConfig::parse(network, &args);
    if let Ok(config) = &sriov {
        let settings = &config.settings;
        assert_eq!(settings.mac, config.mac);
        assert!(config.mac.is_none_or(MacAddr::is_usable));
        assert!(settings.vlan.is_none_or(|vlan| vlan.id <= 4094 && vlan.qos <= 7));
        assert_eq!(config.has_rate, (settings.min_tx_rate.is_some(), settings.max_tx_rate.is_some()));
    }
    let infiniband = InfinibandConfig::parse(network, &args);
    if let Ok(config) = &infiniband {
        assert!(config.guid.is_none_or(|guid| guid.0 != [0; 8]));
        assert!(network.ipam.as_ref().is_none_or(|ipam| ipam.plugin != "dhcp"));
    }
    let rdma = RdmaConfig::parse(network, &args);
    assert!(rdma.is_err() || network.previous.is_some());
    sriov.as_ref().err().map(refused);
    infiniband.as_ref().err().map(refused);
    rdma.as_ref().err().map(refused);
    sriov.is_ok() | infiniband.is_ok() | rdma.is_ok() | check_ports(network, &args)
}

/// Checks the settings of the plugins for software bridges; returns whether one accepts the configuration.
fn check_ports(network: &NetworkConfig, args: &CniArgs) -> bool {
    let refused = |error: &CniError| check_error(error, &[ErrorCode::InvalidConfig]);
    let ovs = OvsConfig::parse(network, args, None);
    if let Ok(config) = &ovs {
        assert!(config.bridge.is_some() || config.device.is_some());
        let ids = match &config.vlans {
            OvsVlans::Access(id) => vec![*id],
            OvsVlans::Trunk(ids) => ids.iter().copied().collect(),
        };
        assert!(ids.iter().all(|id| *id <= 4095) && config.mac.is_none_or(MacAddr::is_usable));
        assert_eq!(config.socket.to_string().parse::<OvsSocket>().as_ref(), Ok(&config.socket));
    }
    let bridge = AcceleratedBridgeConfig::parse(network, args);
    if let Ok(config) = &bridge {
        assert!(config.vlan <= 4094 && config.trunk.iter().all(|id| (1..=4094).contains(id)));
    }
    let mirrors = [true, false].map(|is_producer| MirrorConfig::parse(is_producer, network, args, None));
    for mirror in &mirrors {
        assert!(mirror.as_ref().is_ok_and(|mirror| !mirror.mirrors.is_empty()) || mirror.is_err());
        mirror.as_ref().err().map(refused);
    }
    ovs.as_ref().err().map(refused);
    bridge.as_ref().err().map(refused);
    ovs.is_ok() || bridge.is_ok() || mirrors.iter().any(Result::is_ok)
}

#[test]
fn cni_args() {
    const WORDS: &[&str] = &["IgnoreUnknown=1", "IgnoreUnknown=0;", "MAC=", "K8S_POD_UID=", ";", "="];
    Target::new("cni_args").with_words(WORDS).run(|bytes| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let parsed = CniArgs::parse(&text);
        let variables = |command: &str| -> BTreeMap<String, String> {
            let pairs = [
                ("CNI_COMMAND", command),
                ("CNI_CONTAINERID", "c1"),
                ("CNI_NETNS", "/var/run/netns/pod"),
                ("CNI_IFNAME", "net1"),
                ("CNI_PATH", "/opt/cni/bin"),
                ("CNI_ARGS", &text),
            ];
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        assert!(Invocation::parse(&variables("DEL")).is_ok(), "arguments cannot prevent a DEL");
        let added = Invocation::parse(&variables("ADD"));
        assert_eq!(added.map(|invocation| invocation.args), parsed);
        match parsed {
            Ok(args) => assert!(args.mac.is_none_or(|mac| text.contains(&mac) && !mac.contains(['=', ';']))),
            Err(error) => {
                check_error(&error, &[ErrorCode::InvalidEnvironment]);
                return Verdict::Refused;
            }
        }
        Verdict::Accepted
    });
}

#[test]
fn cni_result() {
    Target::new("cni_result").run(|bytes| {
        let Ok(value) = serde_json::from_slice(bytes) else { return Verdict::Refused };
        let result = match CniResult::parse(&value, CniVersion::LATEST) {
            Ok(result) => result,
            Err(error) => {
                check_error(&error, &[ErrorCode::Decode]);
                return Verdict::Refused;
            }
        };
        for version in CniVersion::SUPPORTED {
            let written = result.to_json(version);
            let read = CniResult::parse(&written, version).unwrap();
            assert_eq!(read.to_json(version), written);
            assert!(version < CniVersion::V1_0_0 || read == result);
        }
        Verdict::Accepted
    });
}

#[test]
fn go_cni_cache() {
    Target::new("go_cni_cache").run(|bytes| {
        let mut is_accepted = false;
        for plugin in Plugin::ALL {
            let cache = match parse_go_cache(plugin, bytes) {
                Ok(cache) => cache,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    continue;
                }
            };
            let attachment = GoAttachment {
                container_id: "c1",
                interface: "net1",
                network: "fast",
                namespace: Namespace {
                    path: "/var/run/netns/pod".to_owned(),
                    id: NamespaceId { device: 4, inode: 5, cookie: None },
                },
                boot_id: "b",
                vf: Some(VfRef { pf: "0000:3b:00.0".parse().unwrap(), index: 9 }),
                socket: OvsSocket::default(),
                config: None,
                cni_path: "/opt/cni/bin",
            };
            let journal = cache.to_journal(&attachment).unwrap();
            assert_eq!((journal.key.plugin, journal.key.device), (plugin, cache.device));
            check_journal(journal);
            is_accepted = true;
        }
        Verdict::of(is_accepted)
    });
}

#[test]
fn cni_journal() {
    Target::new("cni_journal").run(|bytes| {
        let Ok(journal) = serde_json::from_slice::<Journal>(bytes) else { return Verdict::Refused };
        check_journal(journal);
        Verdict::Accepted
    });
}

/// Asserts that a journal is read as it was written, but for what it only hands on to other plugins: its numbers may be
/// larger than those of Rust, and then lose digits.
fn check_journal(journal: Journal) {
    let journal = Journal { config: serde_json::Value::Null, result: None, ..journal };
    let written = serde_json::to_vec(&journal).unwrap();
    assert_eq!(serde_json::from_slice::<Journal>(&written).unwrap(), journal);
}
