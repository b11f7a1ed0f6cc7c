"""What the command line offers, one command a file. Nothing else imports this package."""
