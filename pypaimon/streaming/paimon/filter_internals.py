"""Predicates and bucket hashes of pypaimon. They import `pyarrow.dataset` and pandas.

Modules that plans and reads without a filter need import this one only where they use it.
"""

from pypaimon.common.predicate import Predicate
from pypaimon.common.predicate_builder import PredicateBuilder
from pypaimon.write.row_key_extractor import _bucket_from_hash as bucket_of_hash
from pypaimon.write.row_key_extractor import _hash_bytes_by_words as hash_words

__all__ = ["Predicate", "PredicateBuilder", "bucket_of_hash", "hash_words"]
