"""File indexes, read and written: what a data file has in addition to statistics, so that filters can skip it.

The format of the bytes: https://paimon.apache.org/docs/master/concepts/spec/fileindex/.
"""
