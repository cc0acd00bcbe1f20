//! The binary `posthouse`: the command line, and with `up` and `run` the coordinator itself.

use std::process::ExitCode;

use posthouse_coordinator::cli::{self, Host, Run, Up};
use posthouse_coordinator::{run, up};
use posthouse_shared::refusal::Refusal;

struct Here;

impl Host for Here {
    fn up(&self, up: Up) -> Result<u8, Refusal> {
        up::up(up)
    }

    fn run(&self, run: Run) -> Result<u8, Refusal> {
        run::run(run)
    }
}

fn main() -> ExitCode {
    cli::main(&Here)
}
