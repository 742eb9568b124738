//! Terms of leaders.

use std::time::Duration;

use hallpass::Node;
use tokio::time::timeout;

#[tokio::test]
async fn terms_have_rising_numbers_and_are_lost_with_the_node() {
    let node = Node::builder().start().await.unwrap();
    let first = node.elect("scheduler").await.unwrap();
    let number = first.number();
    assert!(first.resign().await.is_ok());
    let second = node.elect("scheduler").await.unwrap();
    assert!(second.number() > number, "{} after {number}", second.number());
    let awhile = Duration::from_millis(50);
    assert!(timeout(awhile, second.lost()).await.is_err(), "it leads");
    assert!(timeout(awhile, second.at_risk()).await.is_err(), "it leads");
    node.stop().await;
    timeout(Duration::from_secs(30), second.lost()).await.unwrap();
    assert!(second.resign().await.is_err());
}
