//! Delegation to the IPAM plugin of a network.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use vfleet_host::attachment::{AttachmentHost, DelegateCall, DelegateOutput};
use vfleet_plan::cni::journal::{Journal, Phase};
use vfleet_plan::cni::protocol::result::CniResult;
use vfleet_plan::cni::protocol::{CniError, CniVersion, Command, ErrorCode};

use crate::call::PluginCall;
use crate::failure::host_failure;

/// Limit for an IPAM plugin. Runtimes wait some minutes for a pod.
const LIMIT: Duration = Duration::from_secs(100);
/// Code with which the Go library refuses a command that it does not know.
const UNKNOWN_COMMAND: ErrorCode = ErrorCode::Delegated(ErrorCode::InvalidEnvironment.number());

/// Call of an IPAM plugin.
#[derive(Clone, Debug)]
pub(crate) struct Ipam {
    /// Name of the plugin.
    plugin: String,
    search_path: Vec<String>,
    environment: BTreeMap<String, String>,
    stdin: Vec<u8>,
    version: CniVersion,
}

impl Ipam {
    /// Returns the IPAM plugin of a call; `None` if the network has none.
    fn of_call(call: &PluginCall) -> Option<Self> {
        let ipam = call.network.ipam.as_ref()?;
        Some(Self {
            plugin: ipam.plugin.clone(),
            search_path: call.invocation.path.clone(),
            environment: call.variables.clone(),
            stdin: call.stdin.clone(),
            version: call.network.version,
        })
    }

    /// Returns the IPAM plugin that the plugin of a call may have run for an attachment that is unknown; `None` if it runs
    /// none.
    pub(crate) fn run_by(call: &PluginCall) -> Option<Self> {
        Self::of_call(call).filter(|_| call.plugin.can_run_ipam())
    }

    /// Returns the IPAM plugin that the plugin of a call runs for this attachment; `None` if it runs none.
    pub(crate) fn run_for(call: &PluginCall, journal: &Journal) -> Option<Self> {
        Self::of_call(call).filter(|_| journal.changes.runs_ipam())
    }

    /// Returns the IPAM plugin that the plugin of an attachment has run, as its journal has it, for a release without its
    /// runtime. `None` if a DEL or GC has freed the addresses already, and for a pod of a Go plugin, of which nobody knows where
    /// the IPAM plugin is.
    pub(crate) fn of_journal(journal: &Journal) -> Option<Self> {
        let has_freed_addresses = journal.phase == Phase::Releasing;
        if has_freed_addresses || !journal.changes.runs_ipam() || journal.cni_path.is_empty() {
            return None;
        }
        let text = |value: &Value, key: &str| {
            let found = value.as_object()?.iter().find(|(name, _)| name.eq_ignore_ascii_case(key))?;
            Some(found.1.clone())
        };
        let plugin = text(&text(&journal.config, "ipam")?, "type")?.as_str()?.to_owned();
        let version = text(&journal.config, "cniVersion").and_then(|version| version.as_str()?.parse().ok());
        let key = &journal.key;
        let environment = [
            ("CNI_CONTAINERID", key.container_id.as_str()),
            ("CNI_NETNS", journal.namespace.path.as_str()),
            ("CNI_IFNAME", key.interface.as_str()),
            ("CNI_PATH", journal.cni_path.as_str()),
        ];
        Some(Self {
            plugin,
            search_path: journal
                .cni_path
                .split(':')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            stdin: journal.config.to_string().into_bytes(),
            version: version.unwrap_or(CniVersion::LATEST),
        })
    }

    /// Checks that the program exists.
    pub(crate) fn check_installed<H: AttachmentHost + ?Sized>(&self, host: &H) -> Result<(), CniError> {
        let found = host.find_plugin(&self.plugin, &self.search_path).map_err(host_failure)?;
        if found.is_some() {
            return Ok(());
        }
        let path = self.search_path.join(":");
        let problem = format!("IPAM plugin {} was not found in {path}", self.plugin);
        Err(CniError::invalid_config("ipam.type", problem).with_details("install it on this node"))
    }

    /// Runs ADD and returns the addresses.
    pub(crate) fn add<H: AttachmentHost + ?Sized>(&self, host: &H) -> Result<CniResult, CniError> {
        let output = self.run(host, Command::Add)?;
        let value: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
            let message = format!("result of IPAM plugin {} is not JSON", self.plugin);
            CniError::new(ErrorCode::Decode, message).with_details(error.to_string())
        })?;
        CniResult::parse(&value, self.version).map_err(|error| CniError {
            message: format!("result of IPAM plugin {}: {}", self.plugin, error.message),
            ..error
        })
    }

    /// Runs a command that has no result. A plugin that is older than the command refuses it, and has nothing to do.
    pub(crate) fn forward<H: AttachmentHost + ?Sized>(
        &self,
        host: &H,
        command: Command,
    ) -> Result<(), CniError> {
        match self.run(host, command) {
            Err(error) if is_recent(command) && error.code == UNKNOWN_COMMAND => {
                tracing::debug!(%error, "the IPAM plugin does not know the command");
                Ok(())
            }
            result => result.map(drop),
        }
    }

    fn run<H: AttachmentHost + ?Sized>(
        &self,
        host: &H,
        command: Command,
    ) -> Result<DelegateOutput, CniError> {
        self.check_installed(host)?;
        let mut environment = self.environment.clone();
        environment.insert("CNI_COMMAND".to_owned(), command.name().to_owned());
        let output = host.delegate(&DelegateCall {
            plugin: &self.plugin,
            search_path: &self.search_path,
            environment: &environment,
            stdin: &self.stdin,
            limit: LIMIT,
        });
        let output = output.map_err(host_failure)?;
        if output.is_success { Ok(output) } else { Err(self.failure(command, &output)) }
    }

    /// Returns the error that the plugin printed, or one about its end.
    fn failure(&self, command: Command, output: &DelegateOutput) -> CniError {
        let subject = format!("IPAM plugin {} failed at {}", self.plugin, command.name());
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let text = |key| printed.get(key).and_then(Value::as_str).unwrap_or_default();
        let code = printed.get("code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
        match code.filter(|code| *code > 0) {
            Some(code) => CniError::new(ErrorCode::Delegated(code), format!("{subject}: {}", text("msg")))
                .with_details(text("details")),
            None => CniError::new(ErrorCode::DeviceFailed, format!("{subject} ({})", output.outcome))
                .with_details(output.stderr.clone()),
        }
    }
}

/// Returns whether a command exists since 1.1.0 only. Plugins that were built before refuse it, whatever version the network
/// has.
const fn is_recent(command: Command) -> bool {
    matches!(command, Command::Gc | Command::Status)
}
