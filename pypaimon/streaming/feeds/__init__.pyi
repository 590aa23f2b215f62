from pypaimon.streaming.feeds.mixed_feed import MixedFeed as MixedFeed
from pypaimon.streaming.feeds.ranks import equal_batches as equal_batches
from pypaimon.streaming.feeds.ray_feed import RayFeed as RayFeed
from pypaimon.streaming.feeds.ray_feed import ray_dataset as ray_dataset
from pypaimon.streaming.feeds.torch_feed import TorchFeed as TorchFeed
