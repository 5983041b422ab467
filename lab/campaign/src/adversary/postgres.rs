//! PostgreSQL.

use leasehold_postgres::Postgres;
use leasehold_sql_support::Layout;
use leasehold_sql_support::postgres::{KeyTable, migration};
use leasehold_sql_support::remote::Table;

use super::flawed::{Flaw, VERSION};
use super::target::Target;

const JUMPING_CLOCK: &str =
    "((date_part('epoch', clock_timestamp()) - 3 * random()) * 1e6)::bigint";

/// Moves are frequent.
const MOVE_AFTER: u32 = 4;

/// Some insertions stall after their values were computed, as in an overloaded server.
const STALLS: &str = "CREATE OR REPLACE FUNCTION public.stall() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN IF random() < 0.1 THEN PERFORM pg_sleep(0.003 * random()); END IF; RETURN NEW; END $$;
  CREATE OR REPLACE TRIGGER stall BEFORE INSERT ON public.leasehold_key FOR EACH ROW EXECUTE FUNCTION public.stall()";

impl Target for Postgres {
    const ROW: &str = "public.leasehold_key WHERE key = 'overtaken'";

    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

    fn tables() -> String {
        format!("{}; {STALLS}", migration(&layout()))
    }

    fn table(clock_jumps: bool, _: bool) -> Box<dyn Table> {
        let clock = clock_jumps.then_some(JUMPING_CLOCK);
        Box::new(KeyTable::new(&layout(), clock).with_moves_after(MOVE_AFTER))
    }

    fn flawed(text: String, flaw: Flaw) -> String {
        let min_token = layout().object("min_token", '"');
        let read =
            |of: &str| format!("(SELECT last_value FROM {min_token} WHERE {of} IS NOT NULL)");
        match flaw {
            Flaw::MinimumTokenWithoutLock => text,
            Flaw::WithoutMinimumToken => {
                text.replace(&read("k.token"), "0::bigint").replace(&read("u.key"), "0::bigint")
            }
            Flaw::TokenDrawnInValues => text.replace(&read("k.token"), "0::bigint").replace(
                "0, n.token, least(",
                &format!("0, greatest(n.token, (SELECT last_value + 1 FROM {min_token})), least("),
            ),
            Flaw::WithoutVersion => text.replace(VERSION, ""),
            Flaw::WithoutMoved => text.replace("NOT k.moved AND (k.ends", "(k.ends"),
        }
    }
}

/// A transaction ignores the search path, so its statements name the schema.
fn layout() -> Layout {
    Layout::default().in_schema("public").expect("the name is valid")
}
