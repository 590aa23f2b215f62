"""The fluent face: settings, their checks, and what is made of them."""
