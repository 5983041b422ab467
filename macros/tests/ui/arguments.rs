use leasehold_macros::locked;

#[locked]
async fn no_arguments() -> Result<(), Error> {}

#[locked(key = "k")]
async fn no_client() -> Result<(), Error> {}

#[locked(client = locks)]
async fn no_key() -> Result<(), Error> {}

#[locked(key = "k", client = locks, timeout = "3s")]
async fn unknown() -> Result<(), Error> {}

#[locked(key = "k", client = locks, ttl = "1s", ttl = "2s")]
async fn twice() -> Result<(), Error> {}

#[locked(key = key, client = locks)]
async fn not_a_literal(key: &str) -> Result<(), Error> {}

#[locked(key = "k", client = locks, on_busy = panic)]
async fn unknown_choice() -> Result<(), Error> {}

#[locked(key = "k", client = locks, retry = "5")]
async fn not_a_count() -> Result<(), Error> {}

#[locked(key = "k", client = locks, every = "1s", on_busy = skip)]
async fn pauses_without_a_wait() -> Result<Option<()>, Error> {}

#[locked(key = "k", client = locks, retry = 5)]
async fn a_count_without_pauses() -> Result<(), Error> {}

#[locked(key = "k", client = locks, guard = id)]
async fn guard_in_place_of_an_argument(id: u64) -> Result<(), Error> {}

fn main() {}
