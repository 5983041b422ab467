//! The help of the subcommands, and the manual pages.

use clap::Arg;

use crate::exit::{self, Activity};

/// The widest line of the options in a manual page, which indents them by 7.
const PAGE_WIDTH: usize = 73;

/// The parts of a help text that clap does not know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Help {
    /// Titles and texts, in the order of the help.
    pub(crate) sections: &'static [(&'static str, &'static str)],
    /// The exit codes that only this subcommand has, or for which it has its own words.
    pub(crate) status: &'static str,
    /// It decides which codes of [`exit::MEANINGS`] are listed.
    pub(crate) activity: Activity,
    pub(crate) examples: &'static str,
}

impl Help {
    /// The help for a subcommand that does not connect to a store.
    pub(crate) const OFFLINE: Self = Self::of(Activity::Prints);

    /// For a subcommand that connects to a store.
    pub(crate) const CONNECTING: Self = Self::of(Activity::Connects);

    /// For a subcommand that acquires locks.
    pub(crate) const LOCKING: Self = Self::of(Activity::Locks);

    /// For a subcommand that runs a command while it holds a lock.
    pub(crate) const RUNNING: Self = Self::of(Activity::Runs);

    const fn of(activity: Activity) -> Self {
        Self { sections: &[], status: "0    success", activity, examples: "" }
    }

    fn exit_status(&self) -> String {
        let codes = exit::MEANINGS.iter().filter(|(_, activity, _)| *activity <= self.activity);
        let shared = codes.map(|(code, _, meaning)| {
            let meaning = meaning.replace('\n', "\n     ");
            format!("{code:<4} {meaning}")
        });
        [self.status.to_owned()].into_iter().chain(shared).collect::<Vec<_>>().join("\n")
    }

    /// All titles and texts.
    pub(crate) fn parts(&self) -> Vec<(&'static str, String)> {
        let sections = self.sections.iter().map(|(title, text)| (*title, (*text).to_owned()));
        let ends = [("Exit status", self.exit_status()), ("Examples", self.examples.to_owned())];
        sections.chain(ends).filter(|(_, text)| !text.is_empty()).collect()
    }

    pub(crate) fn text(&self) -> String {
        let part = |(title, text): (&str, String)| {
            let lines: String = text.lines().map(|line| indented(line, "  ")).collect();
            format!("{title}:\n{}", lines.trim_end())
        };
        self.parts().into_iter().map(part).collect::<Vec<_>>().join("\n\n")
    }
}

fn indented(line: &str, by: &str) -> String {
    if line.is_empty() { "\n".to_owned() } else { format!("{by}{line}\n") }
}

/// The names of the files of all manual pages, and their texts. The page of the whole command, with the help `main`, is the first one.
pub(crate) fn pages(
    mut command: clap::Command,
    main: &Help,
    help_of: impl Fn(&str) -> Help,
) -> Vec<(String, String)> {
    command.build();
    let verbs = command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help");
    let verbs: Vec<clap::Command> = verbs.cloned().collect();
    let names: Vec<String> =
        verbs.iter().map(|it| format!("leasehold-{}", it.get_name())).collect();
    let page = |(verb, name): (&clap::Command, &String)| {
        let others: Vec<&str> = names
            .iter()
            .filter(|it| *it != name)
            .map(String::as_str)
            .chain(["leasehold"])
            .collect();
        (format!("{name}.1"), page(verb, name, &help_of(verb.get_name()), &others))
    };
    let pages = verbs.iter().zip(&names).map(page);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let main = self::page(&command, "leasehold", main, &names);
    [("leasehold.1".to_owned(), main)].into_iter().chain(pages).collect()
}

/// The page of a command, with its name and the names of the pages that it refers to.
fn page(command: &clap::Command, name: &str, help: &Help, others: &[&str]) -> String {
    let styled = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
    let about = styled(command.get_about()).unwrap_or_default();
    let long = styled(command.get_long_about()).unwrap_or_default();
    let long = long.strip_prefix(&about).unwrap_or(&long).trim_start_matches('.').trim();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let options = command.clone().after_long_help("").term_width(PAGE_WIDTH).render_long_help();
    let options = options.to_string();
    let (_, options) = options.split_once(usage).unwrap_or(("", &options));

    let mut page = format!(".TH {} 1 \"\" \"leasehold {}\"\n", name.to_uppercase(), VERSION);
    section(&mut page, "NAME", &filled(&format!("{name} - {}", about.trim_end_matches('.'))));
    section(&mut page, "SYNOPSIS", &filled(usage.trim()));
    let description =
        if long.is_empty() { format!("{}.", about.trim_end_matches('.')) } else { long.to_owned() };
    section(&mut page, "DESCRIPTION", &filled(&description));
    section(&mut page, "OPTIONS", &literal(options.trim_matches('\n')));
    for (title, text) in help.parts().into_iter().filter(|(title, _)| *title != "Environment") {
        section(&mut page, &title.to_uppercase(), &literal(&text));
        if title == "Exit status" {
            section(&mut page, "ENVIRONMENT", &literal(&environment(command, help)));
            section(&mut page, "FILES", &literal(FILES));
        }
    }
    let others: Vec<String> = others.iter().map(|name| format!("{name}(1)")).collect();
    section(&mut page, "SEE ALSO", &filled(&others.join(", ")));
    page
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

const FILES: &str = "\
~/.config/leasehold/config
       Configuration file, unless LEASEHOLD_CONFIG names a different one
~/.local/state/leasehold/locks.db
       Locks of this user, if no store is specified";

/// The variables that set options of a command, and the variables that its help describes.
fn environment(command: &clap::Command, help: &Help) -> String {
    let option = |arg: &Arg| {
        let (name, long) = (arg.get_env()?.to_str()?, arg.get_long()?);
        Some(format!("{name}\n       Value of --{long}, if the option is not given"))
    };
    let options = command.get_arguments().filter_map(option);
    let told = help.sections.iter().filter(|(title, _)| *title == "Environment");
    let told = told.map(|(_, text)| (*text).to_owned());
    let always = [
        "LEASEHOLD_CONFIG\n       Path of the configuration file".to_owned(),
        "RUST_LOG\n       The events to log, such as leasehold=debug,warn".to_owned(),
    ];
    let is_told = told.clone().next().is_some();
    options
        .chain(told)
        .chain(always.into_iter().filter(|_| !is_told))
        .collect::<Vec<_>>()
        .join("\n")
}

fn section(page: &mut String, title: &str, text: &str) {
    page.push_str(&format!(".SH {title}\n{text}\n"));
}

/// A text whose lines are joined and justified.
fn filled(text: &str) -> String {
    text.split("\n\n").map(escaped).collect::<Vec<_>>().join("\n.PP\n")
}

/// A text whose lines stay as they are.
fn literal(text: &str) -> String {
    format!(".nf\n{}\n.fi", escaped(text))
}

/// A text in which no character is a command.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line
            .replace('\\', "\\e")
            .replace('-', "\\-")
            .replace('\'', "\\(aq")
            .replace('`', "\\(ga");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
