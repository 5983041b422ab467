//! The shell blocks of README and guide run as a reader pastes them, page by page.
//!
//! A comment of HTML right before a block is its mark: `<!-- not run: REASON -->`, or `<!-- held: KEY, KEY -->` for locks that another
//! shell holds meanwhile. A line succeeds, unless its comment names an `exit code`; with `until Ctrl-C` in its comment, it gets that once it
//! has said something. A `text` block right behind shows the output: words with digits stand for any word.

mod session;

use std::fs;
use std::path::{Path, PathBuf};

use session::Session;

struct Block {
    line: usize,
    mark: Option<String>,
    commands: Vec<String>,
    output: Option<Vec<String>>,
}

/// The shell blocks of a page, in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut before, mut is_right_behind) = ("", false);
    let mut lines = page.lines().map(str::trim_start).enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(fence) = line.strip_prefix("```") {
            let language = fence.split([',', ' ']).next().unwrap_or_default();
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            let inside: Vec<_> = inside.map(ToOwned::to_owned).collect();
            let is_shell = ["sh", "bash", "shell", "console"].contains(&language);
            if is_shell {
                let mark = before.strip_prefix("<!-- ").and_then(|mark| mark.strip_suffix(" -->"));
                let mark = mark.map(ToOwned::to_owned);
                blocks.push(Block { line: number + 1, mark, commands: inside, output: None });
            } else if language == "text" && is_right_behind {
                blocks.last_mut().expect("a shell block is before it").output = Some(inside);
            }
            is_right_behind = is_shell;
        } else if !line.is_empty() {
            is_right_behind = false;
        }
        if !line.is_empty() {
            before = line;
        }
    }
    blocks
}

/// Whether a line of a page is this one, but for tokens, times and names of processes.
fn fits(shown: &str, said: &str) -> bool {
    let (shown, said): (Vec<_>, Vec<_>) = (shown.split(' ').collect(), said.split(' ').collect());
    let changes = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    shown.len() == said.len() && shown.iter().zip(said).all(|(a, b)| *a == b || changes(a))
}

fn exit_code_after(command: &str) -> i32 {
    let named = command.rsplit_once("exit code ").map(|(_, code)| code.parse().unwrap());
    named.unwrap_or(0)
}

/// Runs a block, unless its mark says why not.
fn run(session: &mut Session, block: &Block, at: &str) {
    let mark = block.mark.as_deref().unwrap_or_default();
    let (kind, rest) = mark.split_once(": ").unwrap_or((mark, ""));
    let held = match kind {
        "not run" => return assert!(rest.len() > 10, "{at}: this gives no reason: {mark}"),
        "held" => rest.split(", ").collect(),
        _ => Vec::new(),
    };
    session.write_scripts(&block.commands);
    for key in held {
        session.start(&format!("leasehold hold {key}"));
    }

    let mut output = Vec::new();
    for command in &block.commands {
        if command.ends_with("until Ctrl-C") {
            output.push(session.start(command));
            session.interrupt();
            continue;
        }
        let (said, code) = session.run(command);
        assert_eq!(code, exit_code_after(command), "{at}: {command}\n{}", said.join("\n"));
        output.extend(said);
    }

    if let Some(shown) = &block.output {
        let fits =
            shown.len() == output.len() && shown.iter().zip(&output).all(|(a, b)| fits(a, b));
        assert!(fits, "{at} shows\n{}\nand it says\n{}", shown.join("\n"), output.join("\n"));
    }
    session.end_all();
}

fn run_page(path: &Path) {
    let page = fs::read_to_string(path).unwrap();
    let blocks = blocks(&page);
    // The servers of a session take a second to start.
    if blocks.is_empty() {
        return;
    }
    let mut session = Session::open(&page);
    for block in blocks {
        run(&mut session, &block, &format!("{}:{}", path.display(), block.line));
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn commands_of_both_readmes_run_as_written() {
    run_page(&root().join("README.md"));
    run_page(&root().join("cli/README.md"));
}

#[test]
fn commands_of_the_guide_run_as_written() {
    for page in fs::read_dir(root().join("docs/guide")).unwrap() {
        run_page(&page.unwrap().path());
    }
}

#[test]
fn commands_of_the_pages_of_databases_run_as_written() {
    for folder in ["backend-postgres", "backend-mysql", "backend-sqlite"] {
        run_page(&root().join(folder).join("README.md"));
    }
}
