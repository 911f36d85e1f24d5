//! `make bench`: measures the operator beside a bare loop of the same writes and beside the Go operator, and the agent
//! beside bare writes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use vfleet_tests::bench::{Options, Part, run};

/// Measure the operator and the agent: tables of figures and ratios on standard output, progress on standard error.
///
/// Ends with an error when a limit is missed.
#[derive(Parser)]
struct Arguments {
    /// The vfleet program.
    #[arg(long)]
    vfleet: PathBuf,
    /// The program that runs in the lab's machine.
    #[arg(long)]
    in_lab: PathBuf,
    /// What is measured.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Part::Node, Part::Drain, Part::Admission, Part::Operator])]
    parts: Vec<Part>,
    /// How many nodes are drained.
    #[arg(long, default_value_t = 2000)]
    drained: usize,
    /// Fleet sizes.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,5000")]
    sizes: Vec<usize>,
    /// Measure the Go operator on fleets up to this size: 0 for none. With 5000 it takes about 30 minutes more.
    #[arg(long, default_value_t = 1000)]
    go_up_to: usize,
    /// Seconds after which to stop waiting for what the Go operator finds only in its resync, every 5 minutes.
    #[arg(long, default_value_t = 10)]
    go_late: u64,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the tables are what it is run for")]
async fn main() -> anyhow::Result<ExitCode> {
    let Arguments { vfleet, in_lab, parts, drained, sizes, go_up_to, go_late } = Arguments::parse();
    let measures_go = parts.contains(&Part::Operator) && go_up_to < 5000;
    let options =
        Options { vfleet, in_lab, parts, drained, sizes, go_up_to, go_late: Duration::from_secs(go_late) };
    let (table, missed) = run(options).await?;
    println!("{table}");
    if measures_go {
        println!(
            "The Go operator was measured up to {go_up_to} nodes (--go-up-to); it is given up after {go_late} s"
        );
        println!("where it needs its resync (--go-late).");
    }
    println!("{missed} limits missed");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
