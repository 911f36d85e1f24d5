//! Program of `make bench`: compares the operator with a bare loop of the same writes and with the Go operator, and the
//! agent with bare writes, and the CNI plugins with bare requests to the kernel.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use vfleet_tests::bench::{Options, Part, run};

/// Measure the operator, the agent and the CNI plugins. Prints tables of values and ratios on standard output, progress on standard
/// error.
///
/// Fails if a limit is missed.
#[derive(Parser)]
struct Arguments {
    /// vfleet program to measure.
    #[arg(long)]
    vfleet: PathBuf,
    /// vfleet-cni program to measure.
    #[arg(long)]
    vfleet_cni: PathBuf,
    /// Program that runs in the machine of the lab.
    #[arg(long)]
    in_lab: PathBuf,
    /// Parts to measure.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Part::Cni, Part::Node, Part::Drain, Part::Admission, Part::Operator])]
    parts: Vec<Part>,
    /// Number of nodes to drain.
    #[arg(long, default_value_t = 2000)]
    drained: usize,
    /// Fleet sizes.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,5000")]
    sizes: Vec<usize>,
    /// Maximum fleet size for the Go operator, 0 for none. 5000 nodes take about 30 minutes more.
    #[arg(long, default_value_t = 1000)]
    go_up_to: usize,
    /// Deadline in seconds for changes that the Go operator finds only in its resync, every 5 minutes.
    #[arg(long, default_value_t = 10)]
    go_late: u64,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the tables are the output of the program")]
async fn main() -> anyhow::Result<ExitCode> {
    let Arguments { vfleet, vfleet_cni, in_lab, parts, drained, sizes, go_up_to, go_late } =
        Arguments::parse();
    let measures_go = parts.contains(&Part::Operator) && go_up_to < 5000;
    let options = Options {
        vfleet,
        vfleet_cni,
        in_lab,
        parts,
        drained,
        sizes,
        go_up_to,
        go_late: Duration::from_secs(go_late),
    };
    let (table, missed) = run(options).await?;
    println!("{table}");
    if measures_go {
        println!(
            "The Go operator was measured up to {go_up_to} nodes (--go-up-to). Changes that it finds only in its"
        );
        println!("resync were given up after {go_late} s (--go-late).");
    }
    println!("{missed} limits missed");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
