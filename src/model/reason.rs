//! Why a message was not stored: closed sets of stable codes, used as metric labels, in dead
//! letters and by `explain`.

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every code, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The stable code.
            pub const fn code(self) -> &'static str {
                match self { $($name::$variant => $code,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.code())
            }
        }
    };
}

codes! {
    /// Why a message, or a part of it, became a dead letter.
    Reason {
        /// The topic is not UTF-8.
        BadTopic = "bad_topic",
        /// No stream claims the topic and `mqtt.unrouted` says to keep such messages.
        NoRoute = "no_route",
        /// Nothing names the device, or the name is empty.
        NoDeviceId = "no_device_id",
        /// Text payload that is not UTF-8.
        NotUtf8 = "not_utf8",
        /// Not JSON.
        JsonSyntax = "json_syntax",
        /// NaN or an infinity in JSON.
        JsonNonFinite = "json_non_finite",
        /// A key twice in one object.
        JsonDuplicateKey = "json_duplicate_key",
        /// More after the end of the JSON document.
        JsonTrailingData = "json_trailing_data",
        /// A reading that is not an object where one is due.
        NotAnObject = "not_an_object",
        /// Nothing to store.
        NoValues = "no_values",
        /// A number no 64-bit integer or finite double can hold.
        NumberOutOfRange = "number_out_of_range",
        /// A lone value that is not a number.
        NotANumber = "not_a_number",
        /// A lone value that is none of the stream's boolean words.
        NotABoolean = "not_a_boolean",
        /// A key that BSON or the stream's limits refuse.
        BadKey = "bad_key",
        /// Two values would land in one field.
        KeyCollision = "key_collision",
        /// A time that is present but unreadable, or not believed where the stream is strict.
        BadTime = "bad_time",
        /// Nested too deeply.
        TooDeep = "too_deep",
        /// Too many fields in a reading.
        TooManyFields = "too_many_fields",
        /// Too many readings in a message.
        TooManyReadings = "too_many_readings",
        /// A document beyond what a time-series collection takes, or compressed data that inflates
        /// beyond the stream's payload limit.
        TooLarge = "too_large",
        /// A message beyond the stream's payload limit.
        PacketTooLarge = "packet_too_large",
        /// Compressed data that does not inflate.
        DecompressFailed = "decompress_failed",
        /// Understood, but nothing here can read it.
        Unsupported = "unsupported",
        /// MongoDB refused the document.
        MongoRejected = "mongo_rejected",
    }
}

codes! {
    /// Why a message was left out on purpose.
    IgnoreReason {
        /// No stream claims the topic.
        NoRoute = "no_route",
        /// A `$`-topic that no stream names.
        DollarTopic = "dollar_topic",
        /// A stream with `action = "ignore"`.
        IgnoredTopic = "ignored_topic",
        /// `ignore_when` matched.
        IgnoredContent = "ignored_content",
        /// A replay from the broker's retained store.
        RetainedReplay = "retained_replay",
        /// Nothing in it: how retained messages are cleared.
        EmptyPayload = "empty_payload",
        /// A word that means "no value".
        MissingValue = "missing_value",
    }
}
