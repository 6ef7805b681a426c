package wire

import "strconv"

// CommandType is BaseCommand.type; a command's body has the same number as its
// field number.
type CommandType int32

const (
	TypeConnect                     CommandType = 2
	TypeConnected                   CommandType = 3
	TypeSubscribe                   CommandType = 4
	TypeProducer                    CommandType = 5
	TypeSend                        CommandType = 6
	TypeSendReceipt                 CommandType = 7
	TypeSendError                   CommandType = 8
	TypeMessage                     CommandType = 9
	TypeAck                         CommandType = 10
	TypeFlow                        CommandType = 11
	TypeUnsubscribe                 CommandType = 12
	TypeSuccess                     CommandType = 13
	TypeError                       CommandType = 14
	TypeCloseProducer               CommandType = 15
	TypeCloseConsumer               CommandType = 16
	TypeProducerSuccess             CommandType = 17
	TypePing                        CommandType = 18
	TypePong                        CommandType = 19
	TypeRedeliver                   CommandType = 20
	TypePartitionedMetadata         CommandType = 21
	TypePartitionedMetadataResponse CommandType = 22
	TypeLookup                      CommandType = 23
	TypeLookupResponse              CommandType = 24
	TypeSeek                        CommandType = 28
	TypeGetLastMessageID            CommandType = 29
	TypeGetLastMessageIDResponse    CommandType = 30
	TypeActiveConsumerChange        CommandType = 31
	TypeGetTopics                   CommandType = 32
	TypeGetTopicsResponse           CommandType = 33
	TypeGetSchema                   CommandType = 34
	TypeGetSchemaResponse           CommandType = 35
	TypeAckResponse                 CommandType = 38
	TypeGetOrCreateSchema           CommandType = 39
	TypeGetOrCreateSchemaResponse   CommandType = 40

	// Requests that are read only as far as their request id, for a broker to
	// refuse them: see Unsupported.
	TypeConsumerStats     CommandType = 25
	TypeTransactionBroker CommandType = 50 // TC_CLIENT_CONNECT_REQUEST
	TypeNewTransaction    CommandType = 52
	TypeAddPartitionTxn   CommandType = 54
	TypeAddSubTxn         CommandType = 56
	TypeEndTransaction    CommandType = 58
	TypeWatchTopics       CommandType = 64 // WATCH_TOPIC_LIST
)

var typeNames = [...]string{
	2: "CONNECT", 3: "CONNECTED", 4: "SUBSCRIBE", 5: "PRODUCER", 6: "SEND", 7: "SEND_RECEIPT", 8: "SEND_ERROR",
	9: "MESSAGE", 10: "ACK", 11: "FLOW", 12: "UNSUBSCRIBE", 13: "SUCCESS", 14: "ERROR", 15: "CLOSE_PRODUCER",
	16: "CLOSE_CONSUMER", 17: "PRODUCER_SUCCESS", 18: "PING", 19: "PONG", 20: "REDELIVER_UNACKED",
	21: "PARTITIONED_METADATA", 22: "PARTITIONED_METADATA_RESPONSE", 23: "LOOKUP", 24: "LOOKUP_RESPONSE", 28: "SEEK",
	29: "GET_LAST_MESSAGE_ID", 30: "GET_LAST_MESSAGE_ID_RESPONSE", 31: "ACTIVE_CONSUMER_CHANGE",
	32: "GET_TOPICS_OF_NAMESPACE", 33: "GET_TOPICS_OF_NAMESPACE_RESPONSE", 34: "GET_SCHEMA", 35: "GET_SCHEMA_RESPONSE",
	38: "ACK_RESPONSE", 39: "GET_OR_CREATE_SCHEMA", 40: "GET_OR_CREATE_SCHEMA_RESPONSE",
	25: "CONSUMER_STATS", 50: "TC_CLIENT_CONNECT_REQUEST", 52: "NEW_TXN", 54: "ADD_PARTITION_TO_TXN", 56: "ADD_SUBSCRIPTION_TO_TXN",
	58: "END_TXN", 64: "WATCH_TOPIC_LIST",
}

// String returns the protocol's name of the command, or "command N".
func (t CommandType) String() string {
	if t >= 0 && int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return "command " + strconv.Itoa(int(t))
}

// ServerError is the error code of ERROR, SEND_ERROR and of failed responses.
type ServerError int32

const (
	ErrorUnknown              ServerError = 0
	ErrorMetadata             ServerError = 1
	ErrorPersistence          ServerError = 2
	ErrorAuthentication       ServerError = 3
	ErrorAuthorization        ServerError = 4
	ErrorConsumerBusy         ServerError = 5
	ErrorServiceNotReady      ServerError = 6
	ErrorQuotaBlocked         ServerError = 7
	ErrorQuotaExceeded        ServerError = 8
	ErrorChecksum             ServerError = 9
	ErrorUnsupportedVersion   ServerError = 10
	ErrorTopicNotFound        ServerError = 11
	ErrorSubscriptionNotFound ServerError = 12
	ErrorConsumerNotFound     ServerError = 13
	ErrorTooManyRequests      ServerError = 14
	ErrorTopicTerminated      ServerError = 15
	ErrorProducerBusy         ServerError = 16
	ErrorInvalidTopicName     ServerError = 17
	ErrorIncompatibleSchema   ServerError = 18
	ErrorConsumerAssign       ServerError = 19
	ErrorNotAllowed           ServerError = 22
	ErrorProducerFenced       ServerError = 25
)

var serverErrorNames = map[ServerError]string{
	ErrorUnknown: "UnknownError", ErrorMetadata: "MetadataError", ErrorPersistence: "PersistenceError",
	ErrorAuthentication: "AuthenticationError", ErrorAuthorization: "AuthorizationError", ErrorConsumerBusy: "ConsumerBusy",
	ErrorServiceNotReady: "ServiceNotReady", ErrorQuotaBlocked: "ProducerBlockedQuotaExceededError",
	ErrorQuotaExceeded: "ProducerBlockedQuotaExceededException", ErrorChecksum: "ChecksumError",
	ErrorUnsupportedVersion: "UnsupportedVersionError", ErrorTopicNotFound: "TopicNotFound",
	ErrorSubscriptionNotFound: "SubscriptionNotFound", ErrorConsumerNotFound: "ConsumerNotFound",
	ErrorTooManyRequests: "TooManyRequests", ErrorTopicTerminated: "TopicTerminatedError", ErrorProducerBusy: "ProducerBusy",
	ErrorInvalidTopicName: "InvalidTopicName", ErrorIncompatibleSchema: "IncompatibleSchema",
	ErrorConsumerAssign: "ConsumerAssignError", ErrorNotAllowed: "NotAllowedError", ErrorProducerFenced: "ProducerFenced",
}

// String returns the protocol's name of the error, or "error N".
func (e ServerError) String() string {
	if n, ok := serverErrorNames[e]; ok {
		return n
	}
	return "error " + strconv.Itoa(int(e))
}

// SubType is a subscription's type.
type SubType int32

const (
	Exclusive SubType = 0
	Shared    SubType = 1
	Failover  SubType = 2
	KeyShared SubType = 3
)

// String returns the name clients use, such as "Key_Shared".
func (t SubType) String() string {
	switch t {
	case Exclusive:
		return "Exclusive"
	case Shared:
		return "Shared"
	case Failover:
		return "Failover"
	case KeyShared:
		return "Key_Shared"
	}
	return "subscription type " + strconv.Itoa(int(t))
}

// InitialPosition is where a new subscription starts.
type InitialPosition int32

const (
	Latest   InitialPosition = 0
	Earliest InitialPosition = 1
)

// AckType says whether an ACK covers its ids only or everything before them.
type AckType int32

const (
	AckIndividual AckType = 0
	AckCumulative AckType = 1
)

// KeySharedMode is how a Key_Shared subscription divides hashes.
type KeySharedMode int32

const (
	AutoSplit KeySharedMode = 0
	Sticky    KeySharedMode = 1
)

// AccessMode is a producer's claim on its topic.
type AccessMode int32

const (
	AccessShared               AccessMode = 0
	AccessExclusive            AccessMode = 1
	AccessWaitForExclusive     AccessMode = 2
	AccessExclusiveWithFencing AccessMode = 3
)

// Values of LookupResponse.Response.
const (
	LookupRedirect int32 = 0
	LookupConnect  int32 = 1
	LookupFailed   int32 = 2
)

// Values of PartitionedMetadataResponse.Response.
const (
	MetadataSuccess int32 = 0
	MetadataFailed  int32 = 1
)

// ValidationChecksumMismatch is Ack.ValidationError of a client that dropped a
// message because its checksum did not match.
const ValidationChecksumMismatch int32 = 2
