//! Container runtime, as far as it calls a plugin.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::lab_vf::{INTERFACE, LabVf, Pod};

/// Container runtime that attaches pods with one plugin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runtime<'a> {
    pub(super) plugin: &'a Path,
}

impl Runtime<'_> {
    pub(super) fn add(self, pod: &Pod, vf: &LabVf) -> Result<String> {
        self.call("ADD", pod, vf)
    }

    pub(super) fn delete(self, pod: &Pod, vf: &LabVf) -> Result<String> {
        self.call("DEL", pod, vf)
    }

    /// Starts the program without any attachment.
    pub(super) fn version(self, pod: &Pod, vf: &LabVf) -> Result<String> {
        self.call("VERSION", pod, vf)
    }

    /// Calls the plugin as runtimes do: a new process, the attachment in the environment, the configuration on standard input.
    fn call(self, command: &str, pod: &Pod, vf: &LabVf) -> Result<String> {
        let mut plugin = Command::new(self.plugin)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &pod.name)
            .env("CNI_NETNS", pod.namespace())
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_PATH", self.plugin.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| self.plugin.display().to_string())?;
        let written = plugin.stdin.take().context("no input")?.write_all(vf.config().as_bytes());
        let output = plugin.wait_with_output()?;
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        ensure!(output.status.success(), "{command} for {}: {}\n{stdout}{stderr}", pod.name, output.status);
        // VERSION does not read the configuration.
        ensure!(command == "VERSION" || written.is_ok(), "{command} for {} did not read its input", pod.name);
        Ok(stdout)
    }
}
