use std::sync::mpsc;

use vfleet_api::VfRef;
use vfleet_plan::VfDriver;

use super::*;

const SOON: Duration = Duration::from_millis(20);
const MINUTE: Duration = Duration::from_mins(1);

fn pf() -> PciAddress {
    "0000:01:00.0".parse().unwrap()
}

fn other_pf() -> PciAddress {
    "0000:02:00.0".parse().unwrap()
}

fn set_up(pf: PciAddress) -> Step {
    Step::SetLinkUp { pf }
}

fn bind(index: u16) -> Step {
    Step::BindVf { vf: VfRef { pf: pf(), index }, driver: VfDriver::Kernel }
}

fn load_module() -> Step {
    Step::LoadModule { module: "vfio-pci".to_owned(), options: Vec::new() }
}

fn reason<T>(result: &Result<T, HostError>) -> &str {
    result.as_ref().map_or_else(HostError::reason, |_| "Ok")
}

/// Returns a task that hangs until the sender is dropped.
fn hang() -> (mpsc::Sender<()>, impl FnOnce() -> Result<(), HostError> + Send + 'static) {
    let (release, released) = mpsc::channel::<()>();
    let work = move || {
        let _ = released.recv();
        Ok(())
    };
    (release, work)
}

fn execute(supervisor: &Supervisor, step: &Step) -> Result<(), HostError> {
    supervisor.start_step(step, MINUTE, || Ok(()))?.wait()
}

fn read(supervisor: &Supervisor, pf: Option<PciAddress>) -> Result<(), HostError> {
    supervisor.start_read(pf, MINUTE, || Ok(()))?.wait()
}

fn wait_until_idle(supervisor: &Supervisor) {
    while !supervisor.lock().running.is_empty() {
        thread::yield_now();
    }
}

#[test]
fn the_target_of_a_step_that_hangs_is_fenced_until_it_ends() {
    let supervisor = Supervisor::default();
    let (release, work) = hang();
    let stuck = Step::SetNumVfs { pf: pf(), count: 4 };
    let overdue = supervisor.start_step(&stuck, SOON, work).unwrap().wait();
    assert_eq!(reason(&overdue), "DeadlineExceeded");

    let fenced =
        [execute(&supervisor, &set_up(pf())), execute(&supervisor, &bind(1)), read(&supervisor, Some(pf()))];
    for again in fenced {
        assert_eq!(reason(&again), "StepStillRunning");
        assert!(again.unwrap_err().to_string().contains("set 0000:01:00.0 numvfs 4"));
    }
    let others = [
        execute(&supervisor, &set_up(other_pf())),
        execute(&supervisor, &load_module()),
        read(&supervisor, Some(other_pf())),
        read(&supervisor, None),
    ];
    for other in others {
        assert_eq!(reason(&other), "Ok");
    }

    drop(release);
    wait_until_idle(&supervisor);
    assert_eq!(reason(&execute(&supervisor, &set_up(pf()))), "Ok");
    assert_eq!(reason(&read(&supervisor, Some(pf()))), "Ok");
}

#[test]
fn vfs_of_one_pf_are_changed_in_parallel_but_not_together_with_the_pf() {
    let supervisor = Supervisor::default();
    let (_release, work) = hang();
    assert_eq!(reason(&supervisor.start_step(&bind(0), SOON, work).unwrap().wait()), "DeadlineExceeded");
    assert_eq!(reason(&execute(&supervisor, &bind(1))), "Ok");
    assert_eq!(reason(&execute(&supervisor, &bind(0))), "StepStillRunning");
    assert_eq!(reason(&execute(&supervisor, &set_up(pf()))), "StepStillRunning");
}

#[test]
fn a_step_in_time_fences_its_target_for_steps_but_not_for_reads() {
    let supervisor = Supervisor::default();
    let (release, work) = hang();
    let running = supervisor.start_step(&set_up(pf()), MINUTE, work).unwrap();
    assert!(running.is_in_time());
    assert!(running.wait_for(Duration::ZERO).is_none());
    assert_eq!(reason(&execute(&supervisor, &set_up(pf()))), "StepStillRunning");
    assert_eq!(reason(&read(&supervisor, Some(pf()))), "Ok");
    drop(release);
    assert_eq!(reason(&running.wait()), "Ok");
}

#[test]
fn a_read_that_hangs_is_not_repeated_until_it_ends() {
    let supervisor = Supervisor::default();
    for pf in [Some(pf()), None] {
        let (release, work) = hang();
        assert_eq!(reason(&supervisor.start_read(pf, SOON, work).unwrap().wait()), "DeadlineExceeded");
        assert_eq!(reason(&read(&supervisor, pf)), "StepStillRunning");
        assert_eq!(reason(&read(&supervisor, Some(other_pf()))), "Ok");
        drop(release);
        wait_until_idle(&supervisor);
        assert_eq!(reason(&read(&supervisor, pf)), "Ok");
    }
}

#[test]
fn a_machine_with_an_overdue_step_can_be_read() {
    let supervisor = Supervisor::default();
    let (_release, work) = hang();
    let overdue = supervisor.start_step(&load_module(), SOON, work).unwrap().wait();
    assert_eq!(reason(&overdue), "DeadlineExceeded");
    assert_eq!(reason(&read(&supervisor, None)), "Ok");
    assert_eq!(reason(&execute(&supervisor, &load_module())), "StepStillRunning");
}

#[test]
fn the_callback_is_called_when_the_result_is_available_and_the_target_is_free() {
    let supervisor = Supervisor::default();
    let (release, work) = hang();
    let running = supervisor.start_step(&set_up(pf()), MINUTE, work).unwrap();
    let (sender, ended) = mpsc::channel();
    running.on_end(move || sender.send(()).unwrap());
    drop(release);
    ended.recv_timeout(MINUTE).unwrap();
    assert!(!running.is_in_time());
    assert!(supervisor.lock().running.is_empty());
    assert_eq!(reason(&running.wait_for(Duration::ZERO).unwrap()), "Ok");
    let (sender, ended) = mpsc::channel();
    running.on_end(move || sender.send(()).unwrap());
    ended.try_recv().unwrap();
}

#[test]
fn a_task_that_panics_is_an_error_and_leaves_no_fence() {
    let supervisor = Supervisor::default();
    let (sender, ended) = mpsc::channel();
    let (start, started) = mpsc::channel::<()>();
    let panics = move || {
        let _ = started.recv();
        panic!("bug in a step");
    };
    let running = supervisor.start_step(&set_up(pf()), MINUTE, panics).unwrap();
    running.on_end(move || sender.send(()).unwrap());
    drop(start);
    ended.recv_timeout(MINUTE).unwrap();
    assert_eq!(reason(&running.wait()), "SystemResourceUnavailable");
    assert_eq!(reason(&execute(&supervisor, &set_up(pf()))), "Ok");
}

/// A driver that hangs forever may be the reason for the restart, and nothing else ends it.
#[test]
fn a_machine_with_an_overdue_step_can_be_restarted() {
    let supervisor = Supervisor::default();
    let (_release, work) = hang();
    let running = supervisor.start_step(&set_up(pf()), MINUTE, work).unwrap();
    assert_eq!(
        reason(&execute(&supervisor, &Step::Reboot)),
        "StepStillRunning",
        "the step is not overdue yet"
    );
    drop(running);
    let (_release, work) = hang();
    let overdue = Supervisor::default();
    let result = overdue.start_step(&set_up(pf()), SOON, work).unwrap().wait();
    assert_eq!(reason(&result), "DeadlineExceeded");
    assert_eq!(reason(&execute(&overdue, &Step::Reboot)), "Ok");
}
