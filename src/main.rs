//! The `tidegate` program: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Two TLS users are linked in; without a choice made here rustls would refuse to guess.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("tidegate: a TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    tidegate::cli::Cli::parse().run()
}
