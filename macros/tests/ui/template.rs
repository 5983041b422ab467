use leasehold_macros::locked;

#[locked(key = "order:{id", client = locks)]
async fn not_closed(id: u64) -> Result<(), Error> {}

#[locked(key = "order:}", client = locks)]
async fn not_opened(id: u64) -> Result<(), Error> {}

#[locked(key = "order:{}", client = locks)]
async fn no_name(id: u64) -> Result<(), Error> {}

#[locked(key = "order:{id:08}", client = locks)]
async fn a_format(id: u64) -> Result<(), Error> {}

#[locked(key = "order:{id.get()}", client = locks)]
async fn a_call(id: u64) -> Result<(), Error> {}

#[locked(key = "", client = locks)]
async fn empty(id: u64) -> Result<(), Error> {}

fn main() {}
