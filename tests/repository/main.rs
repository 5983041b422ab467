//! Tests of the repository's texts: the public API, the structure of the sources, the pages and the workflows.

mod api;
mod architecture;
mod guide;
mod workflows;
