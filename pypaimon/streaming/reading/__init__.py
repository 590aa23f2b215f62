"""Splits to Arrow: what is read, which rows come out, with which kinds."""
