from pypaimon.streaming.live.subscriptions import BlockingSubscription as BlockingSubscription
from pypaimon.streaming.live.subscriptions import KeyChange as KeyChange
from pypaimon.streaming.live.subscriptions import Subscription as Subscription
