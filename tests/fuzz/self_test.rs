//! Tests of the driver: faulty parsers are detected within the budget of a short run.

use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::driver::{Target, Verdict};

/// Parses values with a length prefix without checking the length.
fn sum_of_lengths(mut bytes: &[u8]) -> usize {
    let mut sum = 0;
    while let [length, rest @ ..] = bytes {
        let length = usize::from(*length);
        sum += rest[..length].len();
        bytes = &rest[length..];
    }
    sum
}

#[test]
fn an_index_without_a_bounds_check_is_detected_and_the_input_is_shrunk() {
    let target = Target::new("self_test").with_input(*b"\x03abc\x02de\x00").with_input(*b"\x01x");
    let failure = target
        .probe(|input| {
            sum_of_lengths(input);
            Verdict::Accepted
        })
        .unwrap_err();
    assert!(
        failure.reason.contains("out of range") && failure.reason.contains("self_test.rs"),
        "{}",
        failure.reason
    );
    assert_eq!(failure.input.len(), 1, "one length without its value is enough: {:?}", failure.input);
}

#[test]
fn a_truncated_number_is_detected() {
    #[expect(clippy::cast_possible_truncation, reason = "this is the defect")]
    let parse = |text: &str| text.trim().parse::<u64>().ok().map(|number| number as u16);
    let check = move |input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let Some(number) = parse(&text) else { return Verdict::Refused };
        assert_eq!(u128::from(number), text.trim().parse().unwrap());
        Verdict::Accepted
    };
    let failure = Target::new("self_test").with_input(*b"8\n").probe(check).unwrap_err();
    assert!(failure.reason.contains("assertion"), "{}", failure.reason);
}

/// The parser expects the field to be a number.
#[test]
fn an_unexpected_type_in_a_document_is_detected() {
    let check = |input: &[u8]| {
        let Ok(document) = serde_json::from_slice::<serde_json::Value>(input) else {
            return Verdict::Refused;
        };
        let Some(member) = document.get("spec").and_then(|spec| spec.get("numVfs")) else {
            return Verdict::Refused;
        };
        assert!(member.as_u64().unwrap() < 1 << 40, "too many");
        Verdict::Accepted
    };
    let document = *br#"{"kind": "Policy", "spec": {"numVfs": 4, "mtu": 1500}}"#;
    assert!(Target::new("self_test").with_input(document).probe(check).is_err());
}

#[test]
fn an_input_that_does_not_end_is_detected() {
    let (end, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let check = move |input: &[u8]| {
        if input.contains(&0xff) {
            let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        Verdict::Accepted
    };
    let target = Target::new("self_test").with_input(*b"abcdef").with_deadline(Duration::from_millis(200));
    let failure = target.probe(check).unwrap_err();
    assert!(failure.reason.contains("does not end") && failure.input.contains(&0xff), "{failure:?}");
    drop(end);
}

#[test]
fn a_slow_input_is_detected() {
    let check = |input: &[u8]| {
        let (is_long, begin) = (input.len() > 100, Instant::now());
        while is_long && begin.elapsed() < Duration::from_millis(400) {
            std::hint::spin_loop();
        }
        Verdict::Accepted
    };
    let target = Target::new("self_test").with_input(*b"a\n").with_processor_time(Duration::from_millis(50));
    let failure = target.probe(check).unwrap_err();
    assert!(failure.reason.contains("of processor time") && failure.input.len() > 100, "{failure:?}");
}

#[test]
fn a_target_whose_corpus_is_refused_fails() {
    let failure = Target::new("self_test").with_input(*b"a").probe(|_| Verdict::Refused).unwrap_err();
    assert!(failure.reason.contains("no input of the corpus is accepted"), "{}", failure.reason);
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let run = || {
        let inputs = std::sync::Arc::new(Mutex::new(Vec::new()));
        let kept = std::sync::Arc::clone(&inputs);
        let check = move |input: &[u8]| {
            kept.lock().unwrap().push(input.to_vec());
            Verdict::of(input.len() < 100)
        };
        let statistics = Target::new("self_test").with_input(*b"abc: 12").probe(check).unwrap();
        assert!(statistics.inputs > 1000 && statistics.accepted < statistics.inputs, "{statistics:?}");
        std::mem::take(&mut *inputs.lock().unwrap())
    };
    assert!(run() == run());
}

/// A folder without a target is never read, and a target that is not in the table is hard to find.
#[test]
fn every_folder_of_the_corpus_has_a_target_and_every_target_is_in_the_table() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |path: &str| -> Vec<String> {
        let entries = std::fs::read_dir(directory.join(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let read = |path: String| std::fs::read_to_string(directory.join(path)).unwrap();
    let sources = names("fuzz").into_iter().filter(|name| {
        Path::new(name).extension().is_some_and(|kind| kind == "rs") && name != "self_test.rs"
    });
    let sources: String = sources.map(|name| read(format!("fuzz/{name}"))).collect();
    let table = read("fuzz/main.rs".to_owned());
    let targets: Vec<&str> =
        sources.split("Target::new(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for folder in names("fuzz/corpus").iter().filter(|name| *name != "README.md") {
        assert!(targets.contains(&folder.as_str()), "{folder} has no target");
    }
    for target in targets {
        assert!(table.contains(&format!("`{target}`")), "{target} is missing in the table in fuzz/main.rs");
    }
}
