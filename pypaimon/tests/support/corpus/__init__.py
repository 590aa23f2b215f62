"""Tables that Java wrote, and what Java reads from them."""
