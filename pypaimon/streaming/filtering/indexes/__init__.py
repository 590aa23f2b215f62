"""File indexes: what Java's writers keep of a column's values beside a data file, and which rows a filter leaves.

Byte formats: Paimon's specification, https://paimon.apache.org/docs/master/concepts/spec/fileindex/.
"""
