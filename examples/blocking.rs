//! Takes a lock in a program without a runtime: `cargo run --example blocking --features blocking`.

fn main() -> Result<(), leasehold::Error> {
    let client = leasehold::blocking::connect("memory:")?;
    let invoice = client.mutex("invoice:42")?;

    let guard = invoice.lock()?;
    println!("held with token {}", guard.token());
    guard.release()?;

    // A closure cannot be cancelled. If the lease is lost, `run` returns an error after the closure has ended.
    invoice.run(|guard| println!("held for at least {:?}", guard.remaining()))?;
    Ok(())
}
