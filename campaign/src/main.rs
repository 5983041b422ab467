//! Disturbs real stores and real clients of Leasehold by a schedule that a seed decides, and judges the history of both.
#![forbid(unsafe_code)]

fn main() {
    println!("{}", leasehold_campaign::run::machine());
}
