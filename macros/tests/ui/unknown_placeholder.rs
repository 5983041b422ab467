use leasehold_macros::locked;

struct Shop;

impl Shop {
    #[locked(key = "order:{ids}", client = locks)]
    async fn settle(&self, id: u64, (from, to): (u32, u32), r#type: u8) -> Result<(), Error> {}
}

#[locked(key = "{self.id}", client = locks)]
async fn nothing_to_name() -> Result<(), Error> {}

fn main() {}
