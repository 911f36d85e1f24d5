use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

/// Returns what `get` reads from a document.
fn get<T>(text: &str, get: impl Fn(&Section<'_>) -> Result<T, KeyFault>) -> Result<T, String> {
    let document = read(text);
    get(&Section::new("", &document).unwrap()).map_err(|fault| fault.to_string())
}

#[test]
fn keys_match_regardless_of_case() {
    for key in ["deviceID", "DeviceID", "DEVICEID", "deviceid", "deviceİD", "dev\u{131}ceID"] {
        let found = get(&format!("{{\"{key}\": \"a\"}}"), |root| {
            root.text("deviceID").map(|text| text.map(ToOwned::to_owned))
        });
        assert_eq!(found.unwrap().is_some(), key.is_ascii(), "{key}");
    }
    for text in ["{\"spoofch\u{212a}\": \"on\"}", "{\"\u{17f}poofchk\": \"on\"}"] {
        assert_eq!(get(text, |root| Ok(root.has("spoofchk"))), Ok(true), "{text}");
    }
}

#[test]
fn the_last_of_equal_keys_counts() {
    for (text, expected) in [
        (r#"{"vlan": 1, "vlan": 2}"#, Some(2)),
        (r#"{"vlan": 1, "VLAN": 2}"#, Some(2)),
        (r#"{"VLAN": 1, "vlan": 2}"#, Some(2)),
        (r#"{"vlan": 1, "VLAN": null}"#, None),
        (r#"{"vlan": null, "VLAN": 2}"#, Some(2)),
        (r#"{"vlan": null}"#, None),
        ("{}", None),
    ] {
        assert_eq!(get(text, |root| root.integer("vlan", 0..=4094)), Ok(expected), "{text}");
    }
}

#[test]
fn equal_objects_are_merged() {
    let text =
        r#"{"runtimeConfig": {"mac": "a", "x": "y"}, "RuntimeConfig": {"x": "z"}, "runtimeconfig": null}"#;
    let texts = get(text, |root| {
        let section = root.section("runtimeConfig")?.unwrap();
        Ok((section.text("mac")?.map(ToOwned::to_owned), section.text("x")?.map(ToOwned::to_owned)))
    });
    assert_eq!(texts, Ok((Some("a".to_owned()), Some("z".to_owned()))));
}

#[test]
fn values_of_a_wrong_type_are_named() {
    let text = r#"{"a": 1, "b": {"c": "x"}, "d": [1], "n": -5, "f": 1.5, "z": true, "a": "1"}"#;
    for (found, expected) in [
        (get(text, |root| root.text("a").map(|_| ())), "a: is a number, must be a string"),
        (get(text, |root| root.text("b").map(|_| ())), "b: is an object, must be a string"),
        (get(text, |root| root.flag("d").map(|_| ())), "d: is a list, must be true or false"),
        (
            get(text, |root| root.integer("f", 0..=9).map(|_| ())),
            "f: is the number 1.5, must be a whole number",
        ),
        (get(text, |root| root.integer("n", 0..=9).map(|_| ())), "n: -5 is not in the range 0 to 9"),
        (get(text, |root| root.integer("z", 0..=9).map(|_| ())), "z: is a boolean, must be a whole number"),
        (get(text, |root| root.section("n").map(|_| ())), "n: is a number, must be an object"),
        (get(text, |root| root.texts("d").map(|_| ())), "d[0]: is a number, must be a string"),
        (get(text, |root| root.objects("d").map(|_| ())), "d[0]: is a number, must be an object"),
        (
            get(text, |root| root.section("b")?.unwrap().integer("c", 0..=9).map(|_| ())),
            "b.c: is a string, must be a whole number",
        ),
    ] {
        assert_eq!(found, Err(expected.to_owned()));
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    for number in ["4294967296", "9223372036854775808", "18446744073709551615", "-1", "-9223372036854775808"]
    {
        let found = get(&format!("{{\"n\": {number}}}"), |root| root.integer("n", 0..=u32::MAX));
        assert!(found.unwrap_err().contains("range"), "{number}");
    }
    for number in ["18446744073709551616", "1e2", "1.0", "-0"] {
        let found = get(&format!("{{\"n\": {number}}}"), |root| root.integer("n", 0..=u32::MAX));
        assert!(found.unwrap_err().contains("whole number"), "{number}");
    }
    assert_eq!(get("{\"n\": 4294967295}", |root| root.integer("n", 0..=u32::MAX)), Ok(Some(u32::MAX)));
}

#[test]
fn keys_of_a_go_map_match_exactly() {
    let text = r#"{"GUID": "a", "other": 5}"#;
    assert_eq!(get(text, |root| root.exact_text("guid").map(|text| text.is_some())), Ok(false));
    assert_eq!(get(text, |root| root.exact_text("GUID").map(|text| text.is_some())), Ok(true));
    let wrong = get(text, |root| root.exact_text("other").map(|_| ()));
    assert_eq!(wrong, Err("other: is a number, must be a string".to_owned()));
}

#[test]
fn deep_nesting_and_impossible_numbers_are_errors() {
    for text in ["[".repeat(100_000), "{\"a\":".repeat(100_000), "1e999".to_owned(), "NaN".to_owned()] {
        assert!(serde_json::from_str::<Json>(&text).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = serde_json::from_slice::<Json>(&bytes);
    }
}
