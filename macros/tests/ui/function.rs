use leasehold_macros::locked;

#[locked(key = "k", client = locks)]
async fn no_result() {}

#[locked(key = "k", client = locks)]
fn another_makes_the_future() -> Pin<Box<dyn Future<Output = Result<(), Error>>>> {
    elsewhere()
}

#[locked(key = "k", client = locks)]
fn neither_does_this() -> impl Future<Output = Result<(), Error>> {
    elsewhere()
}

#[locked(key = "k", client = locks)]
struct NotAFunction;

struct Shop;

#[locked(key = "k", client = self.locks)]
impl Shop {
    async fn settle(&self) -> Result<(), Error> {
        Ok(())
    }
}

trait Job {
    #[locked(key = "k", client = locks)]
    async fn no_body(&self) -> Result<(), Error>;
}

fn main() {}
