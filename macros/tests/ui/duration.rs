use leasehold_macros::locked;

#[locked(key = "k", client = locks, ttl = "30")]
async fn no_unit() -> Result<(), Error> {}

#[locked(key = "k", client = locks, wait = 30)]
async fn a_number() -> Result<(), Error> {}

#[locked(key = "k", client = locks, every = "1m30s")]
async fn two_units() -> Result<(), Error> {}

#[locked(key = "k", client = locks, ttl = "0s")]
async fn a_ttl_of_zero() -> Result<(), Error> {}

#[locked(key = "k", client = locks, retry = 5, every = "0ms")]
async fn a_pause_of_zero() -> Result<(), Error> {}

fn main() {}
