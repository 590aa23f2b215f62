"""Pypaimon's predicates and bucket hashes, used here; importing it costs all of `pyarrow.dataset`, and pandas.

Modules that a plan or a read without a filter needs import it where it is used.
"""

from pypaimon.common.predicate import Predicate
from pypaimon.common.predicate_builder import PredicateBuilder
from pypaimon.write.row_key_extractor import _bucket_from_hash as bucket_of_hash
from pypaimon.write.row_key_extractor import _hash_bytes_by_words as hash_words

__all__ = ["Predicate", "PredicateBuilder", "bucket_of_hash", "hash_words"]
