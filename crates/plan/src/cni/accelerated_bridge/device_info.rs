//! Device-info file, in which the plugin notes the representor for programs that read the status of the pod's networks.

use serde_json::Value;

use crate::cni::facts::FileFacts;
use crate::cni::step::SwitchStep;
use crate::prelude::*;

/// Version that has no field for the representor.
const OLD_VERSION: &str = "1.0.0";
/// Version that has one.
const VERSION: &str = "1.1.0";

/// Returns the step that notes the representor in the file, if that is possible and necessary. The reason why it is not
/// possible is only for the log: the pod works without it.
pub(super) fn plan_note(file: Option<&FileFacts>, representor: &str) -> Result<Option<SwitchStep>, String> {
    let (path, content) = match file {
        None => return Ok(None),
        Some(FileFacts::Missing { path }) => return Err(format!("device-info file {path} does not exist")),
        Some(FileFacts::Unreadable { path, reason }) => return Err(format!("cannot read {path}: {reason}")),
        Some(FileFacts::Present { path, content }) => (path, content),
    };
    let mut info: Value =
        serde_json::from_str(content).map_err(|error| format!("{path} is not JSON: {error}"))?;
    let Some(pci) = info.get_mut("pci").and_then(Value::as_object_mut) else {
        return Err(format!("{path} describes no PCI device"));
    };
    let old = pci.insert("representor-device".to_owned(), representor.into());
    if old.is_some_and(|old| old == representor) {
        return Ok(None);
    }
    if info["version"] == OLD_VERSION {
        info["version"] = VERSION.into();
    }
    Ok(Some(SwitchStep::WriteDeviceInfo { path: path.clone(), content: info.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(content: &str) -> Result<Option<String>, String> {
        let file = FileFacts::Present { path: "/run/info".to_owned(), content: content.to_owned() };
        let step = plan_note(Some(&file), "rep0")?;
        Ok(step.map(|step| step.to_string().replacen("write device-info /run/info: ", "", 1)))
    }

    #[test]
    fn the_representor_is_noted_in_a_version_that_has_it() {
        assert_eq!(
            note(r#"{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:10.0","x":1}}"#),
            Ok(Some(
                r#"{"pci":{"pci-address":"0000:01:10.0","representor-device":"rep0","x":1},"type":"pci","version":"1.1.0"}"#
                    .to_owned()
            ))
        );
        let newer = note(r#"{"version":"1.2.0","pci":{"representor-device":"old"}}"#).unwrap().unwrap();
        assert_eq!(newer, r#"{"pci":{"representor-device":"rep0"},"version":"1.2.0"}"#);
        assert_eq!(note(r#"{"version":"1.1.0","pci":{"representor-device":"rep0"}}"#), Ok(None));
        assert_eq!(plan_note(None, "rep0"), Ok(None));
    }

    #[test]
    fn a_file_that_cannot_be_changed_is_named() {
        for content in ["", "[]", "{}", r#"{"pci":null}"#, r#"{"type":"vdpa","vdpa":{}}"#] {
            assert!(note(content).unwrap_err().starts_with("/run/info "), "{content}");
        }
        let missing = FileFacts::Missing { path: "/run/info".to_owned() };
        assert_eq!(
            plan_note(Some(&missing), "rep0"),
            Err("device-info file /run/info does not exist".to_owned())
        );
    }
}
