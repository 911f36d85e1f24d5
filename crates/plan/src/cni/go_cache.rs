//! Attachments of the Go plugins.
