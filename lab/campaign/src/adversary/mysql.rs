//! MariaDB and MySQL.

use leasehold_mysql::Mysql;
use leasehold_sql_support::Layout;
use leasehold_sql_support::mysql::{KeyTable, migration};
use leasehold_sql_support::remote::Table;

use super::flawed::{Flaw, VERSION};
use super::target::Target;

/// Some statements stall when they read the clock, as in an overloaded server.
const JUMPING_CLOCK: &str =
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) - CAST(3000000 * RAND() AS SIGNED)
    - IF(RAND() < 0.02, SLEEP(0.01 * RAND()), 0))";

impl Target for Mysql {
    const ROW: &str = "leasehold_key WHERE `key` = 'overtaken'";

    const WAITING: &str =
        "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";

    fn tables() -> String {
        migration(&Layout::default())
    }

    fn table(clock_jumps: bool, is_in_cluster: bool) -> Box<dyn Table> {
        let table = KeyTable::new(&Layout::default(), clock_jumps.then_some(JUMPING_CLOCK));
        Box::new(table.in_cluster(is_in_cluster))
    }

    fn flawed(text: String, flaw: Flaw) -> String {
        match flaw {
            Flaw::WithoutMinimumToken if text.contains("LAST_INSERT_ID((GREATEST") => {
                text.replace("f.token", "0")
            }
            Flaw::MinimumTokenWithoutLock => text.replace(" LOCK IN SHARE MODE", ""),
            Flaw::WithoutVersion => text.replace(VERSION, ""),
            _ => text,
        }
    }
}
