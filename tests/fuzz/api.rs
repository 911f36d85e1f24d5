//! Values and objects of the API.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vfleet_api::network::{BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork};
use vfleet_api::{
    Guid, MacAddr, PciAddress, PfSelector, SriovNetworkNodePolicy, SriovNetworkNodeState,
    SriovNetworkPoolConfig, SriovOperatorConfig, VfRange,
};

use crate::driver::{Target, Verdict};

/// Asserts that a value is refused with a reason, or survives printing and parsing.
fn parse_value<T: FromStr<Err: fmt::Display> + fmt::Display + PartialEq + fmt::Debug>(
    text: &str,
) -> Option<T> {
    match text.parse::<T>() {
        Ok(word) => {
            let printed = word.to_string();
            assert!(
                printed.parse::<T>().is_ok_and(|again| again == word),
                "{text:?} is printed as {printed:?}"
            );
            Some(word)
        }
        Err(error) => {
            assert!(error.to_string().contains(" is not "), "{error}");
            None
        }
    }
}

#[test]
fn api_words() {
    Target::new("api_words").with_cases(4000).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches('\n');
        let range = parse_value::<VfRange>(text);
        let selector = parse_value::<PfSelector>(text);
        let written = text.rsplit('#').next().unwrap_or_default().split_once('-');
        for range in range.into_iter().chain(selector.as_ref().and_then(|selector| selector.range)) {
            let (first, last) = written.unwrap();
            let numbers = (first.parse::<u128>().unwrap(), last.parse::<u128>().unwrap());
            assert_eq!(numbers, (range.first().into(), range.last().into()));
            assert!(range.first() <= range.last());
        }
        let address = parse_value::<PciAddress>(text);
        if let Some(address) = address {
            // Leading zeros of the domain have no meaning.
            let [printed, text] =
                [&*address.to_string(), text].map(|text| text.trim_start_matches('0').to_lowercase());
            assert_eq!(printed, text);
        }
        let (mac, guid) = (parse_value::<MacAddr>(text), parse_value::<Guid>(text));
        assert!(mac.is_none_or(|mac| text.eq_ignore_ascii_case(&mac.to_string())));
        Verdict::of(range.is_some() || address.is_some() || mac.is_some() || guid.is_some())
    });
}

/// Parses an object, and asserts that it survives serialization.
fn parse_object<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(object) = serde_json::from_slice::<T>(bytes) else { return false };
    let printed = serde_json::to_value(&object).unwrap();
    let again: T = serde_json::from_value(printed.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), printed);
    true
}

#[test]
fn api_objects() {
    Target::new("api_objects").with_files("crates/api/tests/go_objects").run(|bytes| {
        let kind = serde_json::from_slice::<Value>(bytes).ok();
        let kind = kind.as_ref().and_then(|object| object.get("kind")?.as_str()).unwrap_or_default();
        Verdict::of(match kind {
            "SriovNetworkNodePolicy" => parse_object::<SriovNetworkNodePolicy>(bytes),
            "SriovNetworkNodeState" => parse_object::<SriovNetworkNodeState>(bytes),
            "SriovNetworkPoolConfig" => parse_object::<SriovNetworkPoolConfig>(bytes),
            "SriovOperatorConfig" => parse_object::<SriovOperatorConfig>(bytes),
            "SriovIBNetwork" => parse_object::<SriovIBNetwork>(bytes),
            "OVSNetwork" => parse_object::<OVSNetwork>(bytes),
            "BridgeNetwork" => parse_object::<BridgeNetwork>(bytes),
            _ => parse_object::<SriovNetwork>(bytes),
        })
    });
}
