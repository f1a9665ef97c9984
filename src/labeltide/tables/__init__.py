"""Tables in any form as plain arrays: opening files, reading columns, finding steps and labels."""
