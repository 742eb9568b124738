//! Tests of the program, and of the page that says what its runs and other nets have found.

mod check;
mod track_record;
