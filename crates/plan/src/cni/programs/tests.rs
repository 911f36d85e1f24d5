use super::*;

fn go_program(lines: &str) -> Vec<u8> {
    let mark = b"0w\xaf\x0c\x92t\x08\x02A\xe1\xc1\x07\xe6\xd6\x18\xe6";
    [b"\xff Go buildinf:\x08\x02".as_slice(), b"\x08go1.24.0", mark, lines.as_bytes(), b"\xf92C1"].concat()
}

fn version(text: &str) -> Option<String> {
    match find_origin(text.as_bytes()) {
        Some(ProgramOrigin::Vfleet { version }) => Some(version),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_marker_is_found_with_its_version() {
    assert_eq!(version(MARKER).as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(
        version(&format!("<{MARKER_START}0 {MARKER_START}1.2.3-rc.1+a>")).as_deref(),
        Some("1.2.3-rc.1+a")
    );
    let long = "1".repeat(MAX_VERSION);
    assert_eq!(version(&format!("{MARKER_START}{long}>")), Some(long));
}

#[test]
fn other_texts_are_no_marker() {
    let long = "1".repeat(MAX_VERSION + 1);
    for rest in ["", ">", "1.2.3", "x1>", "1 2>", "1\n>", &format!("{long}>")] {
        assert_eq!(version(&format!("{MARKER_START}{rest}")), None, "{rest:?}");
    }
    assert_eq!(version(PROGRAM), None);
}

#[test]
fn plugins_of_the_go_projects_are_found_by_their_build_information() {
    for module in GO_MODULES {
        let built = |lines: String| find_origin(&go_program(&lines));
        let expected = Some(ProgramOrigin::GoPlugin { module });
        assert_eq!(built(format!("path\t{module}/cmd/plugin\nmod\t{module}\t(devel)\t\n")), expected);
        assert_eq!(built(format!("path\tcommand-line-arguments\nmod\t{module}\tv1.2.3\th1:x\n")), expected);
        assert_eq!(built(format!("path\t{module}\n")), expected);
    }
}

#[test]
fn other_programs_are_not_taken_for_plugins_of_the_go_projects() {
    let sriov = GO_MODULES[0];
    for lines in [
        "path\tgithub.com/other/driver/cmd\nmod\tgithub.com/other/driver\t(devel)\t\n".to_owned(),
        // Its own module is another one.
        format!("path\texample.com/a\nmod\texample.com/a\t(devel)\t\ndep\t{sriov}\tv2.10.0\th1:x\n"),
        format!("path\texample.com/a\ndep\t{sriov}\tv2.10.0\th1:x\n"),
        format!("path\t{sriov}-fork/cmd\nmod\t{sriov}-fork\t(devel)\t\n"),
    ] {
        assert_eq!(find_origin(&go_program(&lines)), None, "{lines:?}");
    }
    let text = format!("path\t{sriov}/cmd/sriov\nmod\t{sriov}\t(devel)\t\n");
    assert_eq!(find_origin(text.as_bytes()), None, "a text about a program is no program");
}

#[test]
fn the_report_names_each_version_once_and_every_foreign_file() {
    let program = |name, origin| InstalledProgram { name, path: format!("/opt/cni/bin/{name}"), origin };
    let ours = |name, version: &str| program(name, ProgramOrigin::Vfleet { version: version.to_owned() });
    let go = program("rdma", ProgramOrigin::GoPlugin { module: GO_MODULES[2] });
    assert_eq!((installed_version(&[]), foreign_programs(&[])), (None, None));
    let good = [ours("sriov", "1.0.0"), ours("ib-sriov", "1.0.0"), go.clone()];
    assert_eq!((installed_version(&good).as_deref(), foreign_programs(&good)), (Some("1.0.0"), None));
    let mixed = [ours("sriov", "1.1.0"), ours("ib-sriov", "1.0.0"), program("rdma", ProgramOrigin::Foreign)];
    assert_eq!(installed_version(&mixed).as_deref(), Some("1.0.0, 1.1.0"));
    let problem = foreign_programs(&mixed).unwrap();
    assert!(problem.starts_with("/opt/cni/bin/rdma was not replaced"), "{problem}");
    assert_eq!(installed_version(&[go]), None);
}
