//! The vfleet program: one file in `commands/` for each subcommand. A library, so that tests can build a program from
//! it.

mod client;
mod commands;
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod log_level;
mod stop;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// SR-IOV for Kubernetes: configures virtual functions of network cards and offers them to pods
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Operator(Box<commands::operator::OperatorArguments>),
    Agent(commands::agent::AgentArguments),
    Node(commands::node::NodeArguments),
    Boot(commands::boot::BootArguments),
    Sim(commands::sim::SimArguments),
    InstallCni(commands::install_cni::InstallCniArguments),
    WaitForConfig(commands::wait_for_config::WaitForConfigArguments),
    Crds(commands::crds::CrdsArguments),
    Manifests(commands::manifests::ManifestsArguments),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Operator(arguments) => commands::operator::run(*arguments),
        Command::Agent(arguments) => commands::agent::run(arguments),
        Command::Node(arguments) => return commands::node::run(&arguments).into(),
        Command::Boot(arguments) => commands::boot::run(&arguments),
        Command::Sim(arguments) => commands::sim::run(&arguments),
        Command::InstallCni(arguments) => return commands::install_cni::run(&arguments).into(),
        Command::WaitForConfig(arguments) => commands::wait_for_config::run(&arguments),
        Command::Crds(arguments) => commands::crds::run(&arguments),
        Command::Manifests(arguments) => commands::manifests::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vfleet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_valid() {
        super::Arguments::command().debug_assert();
    }
}
