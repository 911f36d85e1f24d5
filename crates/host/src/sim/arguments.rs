//! Effects of kernel arguments.

use std::collections::BTreeMap;

use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::Processor;
use vfleet_plan::files::MODULE_OPTIONS;

/// Returns whether the arguments enable an IOMMU that is off by default, as on Intel.
pub(super) fn enables_iommu(processor: Processor, command_line: &str) -> bool {
    let values = command_line.split_whitespace().filter_map(|word| word.strip_prefix("intel_iommu="));
    let last = values.flat_map(|value| value.split(',')).rfind(|word| matches!(*word, "on" | "off"));
    processor == Processor::Intel && last == Some("on")
}

/// Returns the configured initial mode of the RDMA subsystem. An argument takes precedence over options of the module.
pub(super) fn rdma_mode(command_line: &str, files: &BTreeMap<String, String>) -> Option<RdmaMode> {
    let last_mode = |text: &str, name: &str| {
        text.split_whitespace().filter_map(|word| word.strip_prefix(name)).filter_map(parse_mode).next_back()
    };
    let options = files.get(MODULE_OPTIONS).map_or("", String::as_str);
    let module_options: String =
        options.lines().filter_map(|line| line.trim().strip_prefix("options ib_core ")).collect();
    last_mode(command_line, "ib_core.netns_mode=").or_else(|| last_mode(&module_options, "netns_mode="))
}

fn parse_mode(word: &str) -> Option<RdmaMode> {
    match word {
        "0" | "n" | "N" | "off" => Some(RdmaMode::Exclusive),
        "1" | "y" | "Y" | "on" => Some(RdmaMode::Shared),
        _ => None,
    }
}

/// Returns the arguments without `remove` and with those of `add` that are missing.
pub(super) fn change(command_line: &str, add: &[String], remove: &[String]) -> String {
    let mut words: Vec<&str> = command_line.split_whitespace().collect();
    words.retain(|word| !remove.iter().any(|removed| removed == word));
    for argument in add {
        if !words.contains(&argument.as_str()) {
            words.push(argument);
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_iommu_argument_counts() {
        let is_on = |text: &str| enables_iommu(Processor::Intel, text);
        assert!(is_on("quiet intel_iommu=on") && is_on("intel_iommu=sm_on,on"));
        assert!(!is_on("") && !is_on("intel_iommu=on intel_iommu=off") && !is_on("xintel_iommu=on"));
        assert!(!enables_iommu(Processor::Amd, "intel_iommu=on"));
    }

    #[test]
    fn the_rdma_mode_is_set_by_an_argument_or_a_file() {
        let file = |text: &str| BTreeMap::from([(MODULE_OPTIONS.to_owned(), text.to_owned())]);
        let exclusive = file("options ib_core netns_mode=0\n");
        assert_eq!(rdma_mode("", &exclusive), Some(RdmaMode::Exclusive));
        assert_eq!(rdma_mode("ib_core.netns_mode=1", &exclusive), Some(RdmaMode::Shared));
        assert_eq!(rdma_mode("quiet", &file("options vfio netns_mode=0")), None);
    }

    #[test]
    fn arguments_are_added_once_and_removed_only_if_equal() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(change("quiet a=1", &words(&["b=2", "quiet"]), &words(&["a=1"])), "quiet b=2");
        assert_eq!(change("aa=1", &[], &words(&["a=1"])), "aa=1");
    }
}
