"""The pages of the documentation and runs of the command line."""
