//! Program that `make bench` runs in the machine of the lab.

use clap::Parser;
use vfleet_tests::bench::LabCommand;

/// Measure in this machine, which is discarded afterwards. `make bench` starts this program.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[expect(clippy::print_stdout, reason = "the result is the output of the program")]
fn main() -> anyhow::Result<()> {
    println!("{}", Arguments::parse().command.run()?);
    Ok(())
}
